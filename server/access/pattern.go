package access

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// CheckPattern returns an error for an invalid pattern of a property. A pattern of Subject is a list of names, and one
// of CIDR a network or an IP address. The others are texts, or abc*, *abc or *, as in Istio.
func CheckPattern(property, pattern string) error {
	switch {
	case property == Subject:
		return checkSubject(pattern)
	case property == CIDR:
		if _, err := parseNetwork(pattern); err != nil {
			return fmt.Errorf("want a network such as 10.0.0.0/8, or an IP address, got %q", pattern)
		}
	case strings.Count(pattern, "*") > 1 || strings.Contains(strings.Trim(pattern, "*"), "*"):
		return fmt.Errorf("%q: a * stands at the beginning or at the end, once", pattern)
	}
	return nil
}

// matcher returns the comparison of a property's patterns with a value. If the value is a pattern, too, it reports
// whether the first one subsumes it.
func matcher(property string) func(pattern, value string) bool {
	switch property {
	case Subject:
		return matchSubject
	case CIDR:
		return matchNetwork
	case DNS:
		return func(pattern, name string) bool { return matches(strings.ToLower(pattern), strings.ToLower(name)) }
	}
	return matches
}

// matches compares a pattern with a text or another pattern. A valid pattern has a * only at one end, so that the * of
// the other pattern is compared as text.
func matches(pattern, text string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(text, prefix)
	}
	if suffix, ok := strings.CutPrefix(pattern, "*"); ok {
		return strings.HasSuffix(text, suffix)
	}
	return pattern == text
}

func matchNetwork(pattern, part string) bool {
	network, patternErr := parseNetwork(pattern)
	prefix, err := parseNetwork(part)
	return patternErr == nil && err == nil && network.Bits() <= prefix.Bits() && network.Contains(prefix.Addr())
}

// parseNetwork decodes a network or an IP address.
func parseNetwork(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		address = address.Unmap()
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	network, err := netip.ParsePrefix(text)
	if err == nil && network.Addr().Is4In6() {
		err = errors.New("an IPv4 network in IPv6")
	}
	return network, err
}

// admits reports whether one of the patterns matches a text, or there are no patterns.
func admits(patterns []string, text string) bool {
	return compare(patterns, []string{text}, matches, anyValue)
}

// quantifier says how many values of a list have to match.
type quantifier bool

const (
	anyValue  quantifier = false // at least one value, such as one of a client's names
	allValues quantifier = true  // each value of a list that has any, such as each pattern of a subsumed rule
)

// compare reports whether as many values as required match one of the patterns. Without patterns there is no condition:
// it returns true, even without values.
func compare(patterns, values []string, match func(pattern, value string) bool, required quantifier) bool {
	if len(patterns) == 0 {
		return true
	}
	matched := 0
	for _, value := range values {
		if slices.ContainsFunc(patterns, func(pattern string) bool { return match(pattern, value) }) {
			matched++
		}
	}
	return matched > 0 && (required == anyValue || matched == len(values))
}
