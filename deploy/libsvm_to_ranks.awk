# Two rank files from a ranking data set: awk -v out=DIR -f libsvm_to_ranks.awk DATA.query DATA
#
# DATA has a line a candidate: a relevance grade, then index:value features. DATA.query has a line a request: how many
# candidates follow each other in DATA. Requests with more candidates than one and a half times the mean go to rank 0,
# the others to rank 1, so that both counts of the ranks are far apart. Click is a grade of 1 or more, relevance one of
# 2 or more. The logits are a fixed linear score of the features: the same data give the same numbers.

function weight(feature) {
    return ((feature * 37) % 101 - 50) / 100
}

function score(    i, part, sum) {
    sum = 0
    for (i = 2; i <= NF; i++) {
        split($i, part, ":")
        sum += weight(part[1]) * part[2]
    }
    return sum
}

function add(list, rank, value) {
    list[rank] = list[rank] (list[rank] == "" ? "" : ", ") value
}

function write_rank(rank,    file) {
    file = out "/rank" rank ".json"
    printf "{\n  \"group\": \"quickstart\",\n  \"rank\": %d,\n  \"step\": 0,\n  \"lengths\": [%s],\n", rank, lengths[rank] > file
    printf "  \"tasks\": [\n    {\"name\": \"click\", \"logits\": [%s], \"labels\": [%s]},\n", clicks[rank], clicked[rank] > file
    printf "    {\"name\": \"relevance\", \"logits\": [%s], \"labels\": [%s]}\n  ]\n}\n", relevances[rank], relevant[rank] > file
    close(file)
}

# The requests.
FNR == NR {
    size[++num_requests] = $1
    total += $1
    next
}

# The candidates. A request ends when it has as many as it should.
{
    while (request == 0 || seen == size[request]) {
        if (++request > num_requests) {
            print "more candidates than the requests have" > "/dev/stderr"
            failed = 1
            exit 1
        }
        seen = 0
        rank = size[request] > 1.5 * total / num_requests ? 0 : 1
        add(lengths, rank, size[request])
    }
    seen++
    logit = score()
    add(clicks, rank, sprintf("%.6g", logit))
    add(clicked, rank, $1 >= 1 ? 1 : 0)
    add(relevances, rank, sprintf("%.6g", logit - 0.5))
    add(relevant, rank, $1 >= 2 ? 1 : 0)
}

END {
    if (failed)
        exit 1
    if (seen != size[request] || request != num_requests) {
        print "fewer candidates than the requests have" > "/dev/stderr"
        exit 1
    }
    write_rank(0)
    write_rank(1)
}
