package address

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"
)

// ParseHTTP reads the address of a registry that is read over HTTP: scheme://host:port/path?backup=host:port, or with
// TLS scheme+https://. Port and path are the usual ones. The path of the result is escaped, with a slash in front and
// none behind, or empty.
func ParseHTTP(scheme, port, path, text string) (parsed Address, err error) {
	secure := strings.HasPrefix(text, scheme+"+https://")
	if secure {
		scheme += "+https"
	}
	if parsed, err = Parse(scheme, "host:"+port+path, port, text); err != nil {
		return Address{}, err
	}
	for name := range parsed.Params {
		if name != "backup" {
			return Address{}, fmt.Errorf("address: unknown parameter %q; known: backup", name)
		}
	}
	parsed.Secure = secure
	parsed.Path = strings.TrimRight((&url.URL{Path: cmp.Or(parsed.Path, path)}).EscapedPath(), "/")
	return parsed, nil
}
