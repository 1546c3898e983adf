"""Make a manual page from the text of --help: man.py HELP.txt NAME SECTION VERSION > NAME.SECTION

Words at the margin head sections; what is below them is indented by two. A line of these followed by deeper ones, or
with two spaces inside, is a term and what it means; others are running text. Examples and the synopsis keep their lines.
"""

import re
import sys

KEEP_LINES = {"SYNOPSIS", "EXAMPLES"}


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return "\\&" + text if text.startswith((".", "\\(aq")) else text


def is_term(line, following):
    return re.match(r"  \S", line) and (re.search(r"\S\s{2,}\S", line) or re.match(r"   +\S", following))


def format_line(section, line, following):
    if re.match(r"\S", line):
        return [f".SH {line}"]
    if not line:
        return [".PP"]
    if section in KEEP_LINES:
        return [escape(line.strip()), ".br"]
    if is_term(line, following):
        term, *meaning = re.split(r"\s{2,}", line.strip(), maxsplit=1)
        return [".TP", f"\\fB{escape(term)}\\fR", *map(escape, meaning)]
    return [escape(line.strip())]


def main(path, name, number, version):
    with open(path, encoding="ascii") as file:
        lines = file.read().splitlines()
    section = None
    print(f'.TH {name.upper()} {number} "" "{name} {version}"')
    for line, following in zip(lines, lines[1:] + [""]):
        if re.match(r"\S", line):
            section = line
        elif not line and re.match(r"\S", following):
            continue
        if section == "NAME" and line.startswith("  "):
            print(line.strip().replace(" - ", " \\- ", 1))
        else:
            print("\n".join(format_line(section, line, following)))


main(*sys.argv[1:])
