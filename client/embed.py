"""Write a C source whose function returns a file: embed.py OUTPUT HEADER NAME=FILE...

Text files (*.txt) become `const char *embedded_NAME(void)`, others `const uint8_t *embedded_NAME(size_t *bytes)`.
"""

import sys


def rows(data):
    for start in range(0, len(data), 24):
        yield "    " + ",".join(str(byte) for byte in data[start:start + 24]) + ","


def function(name, path):
    with open(path, "rb") as file:
        data = file.read()
    is_text = path.endswith(".txt")
    kind = "char" if is_text else "uint8_t"
    lines = [f"static const {kind} {name}[] = {{", *rows(data + b"\0"), "};", ""]
    if is_text:
        lines += [f"const char *embedded_{name}(void)", "{"]
    else:
        lines += [f"const uint8_t *embedded_{name}(size_t *bytes)", "{", f"    *bytes = {len(data)};"]
    return lines + [f"    return {name};", "}", ""]


def main(output, header, *entries):
    lines = [f'#include "{header}"', ""]
    for entry in entries:
        lines += function(*entry.split("=", 1))
    with open(output, "w", encoding="ascii") as file:
        file.write("\n".join(lines))


main(*sys.argv[1:])
