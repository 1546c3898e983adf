/* libcurl, a call at a time, with everything turned off that a call to a named daemon does not want. */
#include "client/http_client.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "client/unix_failure.h"

enum {
    CONNECT_TIMEOUT_MS = 10000,
    BUFFER_BYTES = 512 << 10,       /* of one send or receive; the default is an eighth of it, or less */
    MAX_FORESEEN_BYTES = 256 << 20, /* that are believed to come because the head of an answer says so */
};

struct http_client {
    CURL *curl;
    CURLM *multi; /* of this one call: whoever is to be asked meanwhile is not asked often enough by libcurl */
    struct interrupt *interrupt;
    char *origin; /* "http://host:port", without a slash behind */
    char *path;   /* of a Unix socket; NULL for other addresses */
    char detail[CURL_ERROR_SIZE];
};

/* What arrives while a call runs. */
struct answer {
    CURL *curl;
    uint8_t *bytes;
    size_t size;
    size_t capacity;
    size_t limit;
    bool too_large;
};

static enum http_result fail(struct http_error *err, enum http_result result, const char *message)
{
    (void)snprintf(err->message, sizeof err->message, "%s", message);
    return result;
}

/* "/path" of "unix:/path" and "unix:///path"; NULL for other addresses. */
static const char *unix_path(const char *address)
{
    if (strncmp(address, "unix:", 5) != 0)
        return NULL;
    address += 5;
    return strncmp(address, "//", 2) == 0 ? address + 2 : address;
}

static bool has_scheme(const char *address)
{
    return strncasecmp(address, "http://", 7) == 0 || strncasecmp(address, "https://", 8) == 0;
}

/* http:// and https:// with a host, and a port that is one where it is given. */
static bool is_url(const char *address)
{
    CURLU *url = has_scheme(address) ? curl_url() : NULL;
    const bool is_good = url != NULL && curl_url_set(url, CURLUPART_URL, address, 0) == CURLUE_OK;

    curl_url_cleanup(url);
    return is_good;
}

/* host:port, host without anything that belongs into a path. */
static bool is_host_port(const char *text)
{
    const char *colon = strrchr(text, ':');
    char *end;
    unsigned long port;

    if (colon == NULL || colon == text || strpbrk(text, "/?#@ ") != NULL)
        return false;
    if (text[0] != '[' && strchr(text, ':') != colon)
        return false;
    if (colon[1] < '0' || colon[1] > '9')
        return false;
    port = strtoul(colon + 1, &end, 10);
    return *end == '\0' && port >= 1 && port <= 65535;
}

static char *origin_of(const char *address)
{
    char *origin = NULL;
    size_t length;

    if (unix_path(address) != NULL)
        return strdup("http://localhost");
    if (asprintf(&origin, "%s%s", has_scheme(address) ? "" : "http://", address) < 0)
        return NULL;
    length = strlen(origin);
    if (origin[length - 1] == '/')
        origin[length - 1] = '\0';
    return origin;
}

/* Room for the first bytes of an answer, and for all of it where its length is told. */
static size_t first_capacity(const struct answer *answer, size_t more)
{
    curl_off_t length = 0;

    if (curl_easy_getinfo(answer->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length) != CURLE_OK || length < 0 ||
        length > MAX_FORESEEN_BYTES || (size_t)length > answer->limit || (size_t)length < more)
        return more + 1;
    return (size_t)length + 1;
}

static size_t receive(char *bytes, size_t size, size_t count, void *context)
{
    struct answer *answer = context;
    const size_t more = size * count;

    if (more > answer->limit - answer->size) {
        answer->too_large = true;
        return 0;
    }
    if (answer->size + more + 1 > answer->capacity) {
        const size_t capacity = answer->capacity == 0 ? first_capacity(answer, more) : 2 * answer->capacity + more + 1;
        uint8_t *grown = realloc(answer->bytes, capacity);

        if (grown == NULL)
            return 0;
        answer->bytes = grown;
        answer->capacity = capacity;
    }
    memcpy(answer->bytes + answer->size, bytes, more);
    answer->size += more;
    return more;
}

/* Programs that this process starts have no business with the connection. */
static int close_on_exec(void *context, curl_socket_t fd, curlsocktype purpose)
{
    (void)context;
    (void)purpose;
    return fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 ? CURL_SOCKOPT_OK : CURL_SOCKOPT_ERROR;
}

/* What stays the same for all calls of a client. */
static bool set_up(struct http_client *client)
{
    CURL *curl = client->curl;
    bool ok = true;

    ok = ok && curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, client->detail) == CURLE_OK;
    ok = ok && curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L) == CURLE_OK;
    ok = ok && curl_easy_setopt(curl, CURLOPT_NOPROXY, "*") == CURLE_OK;
    ok = ok && curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK;
    ok = ok && curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) == CURLE_OK;
    ok = ok && curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, receive) == CURLE_OK;
    ok = ok && curl_easy_setopt(curl, CURLOPT_SOCKOPTFUNCTION, close_on_exec) == CURLE_OK;
    ok = ok && curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, (long)BUFFER_BYTES) == CURLE_OK;
    ok = ok && curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, (long)BUFFER_BYTES) == CURLE_OK;
    if (client->path != NULL)
        ok = ok && curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, client->path) == CURLE_OK;
    return ok;
}

enum http_result http_client_open(const char *address, struct http_client **client, struct http_error *err)
{
    const char *path = unix_path(address);
    struct http_client *made;

    if (path != NULL ? path[0] != '/' : !is_url(address) && !is_host_port(address))
        return fail(err, HTTP_BAD_ADDRESS, "expected host:port, http://host:port, https://host:port or unix:/path");
    made = calloc(1, sizeof *made);
    if (made == NULL)
        return fail(err, HTTP_FAILED, "memory is out");
    made->origin = origin_of(address);
    made->path = path != NULL ? strdup(path) : NULL;
    made->curl = curl_easy_init();
    made->multi = curl_multi_init();
    if (made->origin == NULL || made->curl == NULL || made->multi == NULL || (path != NULL && made->path == NULL) ||
        !set_up(made)) {
        http_client_close(made);
        return fail(err, HTTP_FAILED, "libcurl could not be set up");
    }
    *client = made;
    return HTTP_OK;
}

enum http_result http_client_trust(struct http_client *client, const char *ca_file, struct http_error *err)
{
    if (curl_easy_setopt(client->curl, CURLOPT_CAINFO, ca_file) == CURLE_OK)
        return HTTP_OK;
    return fail(err, HTTP_FAILED, "libcurl could not be set up");
}

void http_client_ask(struct http_client *client, struct interrupt *interrupt)
{
    client->interrupt = interrupt;
}

void http_client_close(struct http_client *client)
{
    if (client == NULL)
        return;
    curl_easy_cleanup(client->curl);
    (void)curl_multi_cleanup(client->multi);
    free(client->origin);
    free(client->path);
    free(client);
}

static bool append_header(struct curl_slist **list, const char *header)
{
    struct curl_slist *longer = curl_slist_append(*list, header);

    if (longer != NULL)
        *list = longer;
    return longer != NULL;
}

/* "Expect:" takes back the header that libcurl adds to large bodies: it costs a round trip. */
static bool make_headers(const struct http_request *request, struct curl_slist **list)
{
    char type[128];
    bool ok = append_header(list, "Expect:");

    if (request->media_type != NULL) {
        (void)snprintf(type, sizeof type, "Content-Type: %s", request->media_type);
        ok = ok && append_header(list, type);
    }
    for (const char *const *header = request->headers; header != NULL && *header != NULL; header++)
        ok = ok && append_header(list, *header);
    return ok;
}

static bool set_request(CURL *curl, const struct http_request *request, const char *url, struct curl_slist *headers,
                        struct answer *answer)
{
    const uint64_t connect_ms = request->connect_ms == 0 ? CONNECT_TIMEOUT_MS : request->connect_ms;
    bool ok = curl_easy_setopt(curl, CURLOPT_URL, url) == CURLE_OK;

    ok = ok && curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers) == CURLE_OK;
    ok = ok && curl_easy_setopt(curl, CURLOPT_WRITEDATA, answer) == CURLE_OK;
    ok = ok && curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)request->timeout_ms) == CURLE_OK;
    ok = ok && curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)connect_ms) == CURLE_OK;
    if (request->media_type == NULL)
        return ok && curl_easy_setopt(curl, CURLOPT_HTTPGET, 1L) == CURLE_OK;
    ok = ok && curl_easy_setopt(curl, CURLOPT_POST, 1L) == CURLE_OK;
    ok = ok && curl_easy_setopt(curl, CURLOPT_POSTFIELDS,
                                request->body_bytes == 0 ? "" : (const char *)request->body) == CURLE_OK;
    return ok && curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_bytes) == CURLE_OK;
}

static enum http_result result_of(CURLcode code, const struct answer *answer)
{
    switch (code) {
    case CURLE_OK:
        return HTTP_OK;
    case CURLE_URL_MALFORMAT:
        return HTTP_BAD_ADDRESS;
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
        return HTTP_CANNOT_CONNECT;
    case CURLE_OPERATION_TIMEDOUT:
        return HTTP_TIMEOUT;
    case CURLE_ABORTED_BY_CALLBACK:
        return HTTP_INTERRUPTED;
    default:
        return answer->too_large ? HTTP_TOO_LARGE : HTTP_FAILED;
    }
}

static bool take_answer(CURL *curl, struct answer *answer, struct http_response *response)
{
    char *type = NULL;
    long status = 0;

    (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    (void)curl_easy_getinfo(curl, CURLINFO_CONTENT_TYPE, &type);
    response->status = (int)status;
    response->content_type = strdup(type == NULL ? "" : type);
    response->body = answer->bytes == NULL ? calloc(1, 1) : answer->bytes;
    response->body_bytes = answer->size;
    answer->bytes = NULL;
    if (response->content_type == NULL || response->body == NULL) {
        http_response_finish(response);
        return false;
    }
    response->body[response->body_bytes] = '\0';
    return true;
}

/* A connect that timed out is nobody there, not a slow answer. */
static bool never_connected(CURL *curl)
{
    curl_off_t ready_us = 0; /* until a request could be sent; set for a kept connection too */

    return curl_easy_getinfo(curl, CURLINFO_PRETRANSFER_TIME_T, &ready_us) == CURLE_OK && ready_us == 0;
}

/* What has become of the call; CURLE_ABORTED_BY_CALLBACK where the user ends it. */
static CURLcode drive(const struct http_client *client)
{
    int num_running = 1;
    int num_left;
    CURLMcode code = CURLM_OK;
    const CURLMsg *message;

    for (;;) {
        code = curl_multi_perform(client->multi, &num_running);
        if (code != CURLM_OK || num_running == 0)
            break;
        if (interrupt_asks(client->interrupt))
            return CURLE_ABORTED_BY_CALLBACK;
        code = curl_multi_poll(client->multi, NULL, 0, (int)(INTERRUPT_INTERVAL_NS / NS_PER_MS), NULL);
        if (code != CURLM_OK)
            break;
    }
    message = code == CURLM_OK ? curl_multi_info_read(client->multi, &num_left) : NULL;
    return message != NULL ? message->data.result : CURLE_OUT_OF_MEMORY;
}

static CURLcode perform(const struct http_client *client)
{
    CURLcode code = CURLE_OUT_OF_MEMORY;

    if (curl_multi_add_handle(client->multi, client->curl) == CURLM_OK)
        code = drive(client);
    (void)curl_multi_remove_handle(client->multi, client->curl);
    return code;
}

enum http_result http_client_call(struct http_client *client, const struct http_request *request,
                                  struct http_response *response, struct http_error *err)
{
    struct answer answer = {
        .curl = client->curl,
        .limit = request->max_answer_bytes == 0 ? HTTP_DEFAULT_ANSWER_BYTES : request->max_answer_bytes,
    };
    struct curl_slist *headers = NULL;
    enum http_result result = HTTP_FAILED;
    CURLcode code = CURLE_OUT_OF_MEMORY;
    char *url = NULL;

    client->detail[0] = '\0';
    if (asprintf(&url, "%s%s", client->origin, request->path) < 0)
        url = NULL;
    if (url != NULL && make_headers(request, &headers) && set_request(client->curl, request, url, headers, &answer)) {
        code = perform(client);
        result = result_of(code, &answer);
        if (result == HTTP_TIMEOUT && never_connected(client->curl))
            result = HTTP_CANNOT_CONNECT;
    }
    if (result == HTTP_OK && !take_answer(client->curl, &answer, response)) {
        code = CURLE_OUT_OF_MEMORY;
        result = HTTP_FAILED;
    }
    if (result == HTTP_INTERRUPTED)
        (void)fail(err, result, "the wait was interrupted");
    else if (result == HTTP_TOO_LARGE)
        (void)fail(err, result, "the answer is larger than expected");
    else if (result == HTTP_CANNOT_CONNECT && client->path != NULL)
        (void)fail(err, result, unix_failure(client->path));
    else if (result != HTTP_OK)
        (void)fail(err, result, client->detail[0] != '\0' ? client->detail : curl_easy_strerror(code));
    curl_slist_free_all(headers);
    free(url);
    free(answer.bytes);
    return result;
}

void http_response_finish(struct http_response *response)
{
    free(response->content_type);
    free(response->body);
    *response = (struct http_response){0};
}
