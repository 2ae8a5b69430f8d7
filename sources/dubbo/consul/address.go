package consul

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// sourceAddress returns an address for Consul's source: it drops all parameters but Consul's.
func sourceAddress(address string) (string, error) {
	address, query, _ := strings.Cut(address, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", fmt.Errorf("address: its parameters: %w", err)
	}
	if values.Has("token") {
		return "", fmt.Errorf("address: %s: a token stands in the file that tokenFile names, or in CONSUL_HTTP_TOKEN",
			address)
	}
	maps.DeleteFunc(values, func(key string, _ []string) bool {
		return !slices.Contains([]string{"dc", "ns", "partition"}, key)
	})
	if len(values) > 0 {
		address += "?" + values.Encode()
	}
	return address, nil
}
