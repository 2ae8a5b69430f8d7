package mapping

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// runs encodes texts as runs of equal ones: each with its count, as in "demo*5 other", the last one without.
func runs(numbers []string) string {
	var parts []string
	for begin := 0; begin < len(numbers); {
		end := begin + 1
		for end < len(numbers) && numbers[end] == numbers[begin] {
			end++
		}
		part := url.QueryEscape(numbers[begin])
		if end < len(numbers) {
			part += "*" + strconv.Itoa(end-begin)
		}
		parts, begin = append(parts, part), end
	}
	return strings.Join(parts, " ")
}

// ofRuns decodes n texts that runs encoded. Those that cannot be decoded are empty.
func ofRuns(text string, n int) []string {
	numbers := make([]string, 0, n)
	for part := range strings.SplitSeq(text, " ") {
		name, count, counted := strings.Cut(part, "*")
		times := n
		if counted {
			times, _ = strconv.Atoi(count)
		}
		name, _ = url.QueryUnescape(name)
		numbers = append(numbers, slices.Repeat([]string{name}, max(0, min(times, n-len(numbers))))...)
	}
	return append(numbers, make([]string, n-len(numbers))...)
}
