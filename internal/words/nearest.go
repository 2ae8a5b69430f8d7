package words

import "strings"

// Nearest returns the name that was probably meant by s, or "": one that differs in case or by two letters at most.
func Nearest(s string, names []string) string {
	best, bestDistance := "", 3
	if len(s) > 64 {
		return ""
	}
	if len(s) < 5 {
		bestDistance = 2
	}
	for _, name := range names {
		if d := EditDistance(strings.ToLower(s), strings.ToLower(name)); d < bestDistance {
			best, bestDistance = name, d
		}
	}
	return best
}

// Meant says what was probably meant by s, behind what says that it is not known; empty if nothing is near.
func Meant(s string, names []string) string {
	if guess := Nearest(s, names); guess != "" {
		return " (did you mean " + guess + "?)"
	}
	return ""
}

// EditDistance returns the number of letters to insert, delete, replace or swap with the next to make b of a.
func EditDistance(a, b string) int {
	var beforeLast []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], beforeLast[j-2]+1)
			}
		}
		beforeLast, last = last, row
	}
	return last[len(b)]
}
