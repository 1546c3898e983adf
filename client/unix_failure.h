/*
 * Why a Unix socket can't be reached. libcurl, which connects there for HTTP, does not tell: it speaks of port 80 of
 * the host "localhost".
 */
#ifndef CLIENT_UNIX_FAILURE_H
#define CLIENT_UNIX_FAILURE_H

/* What the system says of the socket at path, now: "No such file or directory". Static, no full stop. Any thread. */
const char *unix_failure(const char *path);

#endif
