package mapping

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// encodeRuns encodes texts in runs of equal texts, as in "demo*5 other". Each run but the last has its length.
func encodeRuns(texts []string) string {
	var parts []string
	for begin := 0; begin < len(texts); {
		end := begin + 1
		for end < len(texts) && texts[end] == texts[begin] {
			end++
		}
		part := url.QueryEscape(texts[begin])
		if end < len(texts) {
			part += "*" + strconv.Itoa(end-begin)
		}
		parts, begin = append(parts, part), end
	}
	return strings.Join(parts, " ")
}

// decodeRuns decodes n texts that encodeRuns encoded. Those that cannot be decoded are empty.
func decodeRuns(text string, n int) []string {
	texts := make([]string, 0, n)
	for part := range strings.SplitSeq(text, " ") {
		name, count, counted := strings.Cut(part, "*")
		times := n
		if counted {
			times, _ = strconv.Atoi(count)
		}
		name, _ = url.QueryUnescape(name)
		texts = append(texts, slices.Repeat([]string{name}, max(0, min(times, n-len(texts))))...)
	}
	return append(texts, make([]string, n-len(texts))...)
}
