/* Listening sockets: host:port, unix:/path, sockets of records beside these, or handed over by systemd. */
#ifndef TRANSPORT_LISTENER_H
#define TRANSPORT_LISTENER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/status.h"

enum { LISTENER_ADDRESS_SIZE = 160 };

struct listener {
    int fd;                              /* -1 once it is handed on */
    char address[LISTENER_ADDRESS_SIZE]; /* the real one, as --listen would take it: "127.0.0.1:40123", "unix:/path" */
    bool is_records;                     /* a Unix socket of records (SOCK_SEQPACKET), for shared memory */
    bool owns_file;                      /* a Unix socket of our making */
    dev_t device;                        /* of that file */
    ino_t inode;
};

/* The path in an address unix:/path; NULL for another address. */
const char *listener_unix_path(const char *address);

/*
 * Whether an address reads as host:port ("[::1]:7430" for IPv6) or unix:/path. Resolves nothing.
 * LOSSD_INVALID_ARGUMENT.
 */
CHECK_RESULT
enum lossd_status listener_check_address(const char *address, struct lossd_error *err);

/*
 * Whether a checked address may be served: without insecure LOSSD_INVALID_ARGUMENT where it is not loopback. Resolves
 * and binds nothing, and looks at no file: host names and paths are let pass, and looked at when they are bound.
 */
CHECK_RESULT
enum lossd_status listener_check_place(const char *address, bool insecure, struct lossd_error *err);

/*
 * Bind and listen. Port 0 picks a free one. A Unix socket gets mode 0660; one that nobody listens on any more is
 * replaced, a live one is refused.
 *
 * insecure  allow addresses other than loopback.
 *
 * LOSSD_INVALID_ARGUMENT for a bad address, or one that needs insecure; LOSSD_INTERNAL with the system's reason.
 * Main thread, before others are started: it sets the umask for a moment.
 */
CHECK_RESULT
enum lossd_status listener_open(struct listener *listener, const char *address, bool insecure, struct lossd_error *err);

/*
 * The same for a socket of records at unix:/path. LOSSD_INVALID_ARGUMENT for another address, or a path that is too
 * long.
 */
CHECK_RESULT
enum lossd_status listener_open_records(struct listener *listener, const char *address, struct lossd_error *err);

/*
 * The sockets of $LISTEN_FDS, at most max, close-on-exec; 0 where there are none for this process. Takes the variables
 * out of the environment. Fails as listener_open, with all of them closed.
 */
CHECK_RESULT
enum lossd_status listener_inherit(struct listener *listeners, size_t max, size_t *count, bool insecure,
                                   struct lossd_error *err);

/*
 * Remove the socket file, where it is still ours, and close the descriptor, where it was not handed on. Whoever it was
 * handed to has to close it after this call.
 */
void listener_close(struct listener *listener);

#endif
