# What protoc-gen-c can't take: groups and extensions.
!skip && (/^ *(optional|required|repeated) group / || /^ *extend /) { skip = 1; depth = 0 }
skip {
    opened = gsub(/\{/, "{")
    closed = gsub(/\}/, "}")
    depth += opened - closed
    if (depth == 0 && opened + closed > 0)
        skip = 0
    next
}
{ print }
