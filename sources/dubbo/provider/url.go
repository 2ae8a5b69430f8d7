package provider

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tributary/internal/names"
)

// URL is a URL as Dubbo writes it. It is not one of RFC 3986: values are not escaped.
type URL struct {
	Protocol string
	Host     string // an IP address, or a name: see names.Host
	Port     int    // 0 if there is none
	Path     string // without the slash before it
	Params   map[string]string
}

// NewURL returns the URL of a registration without one: with its parameters, which it takes over, and the address in
// the registry.
func NewURL(iface, host string, port int, params map[string]string) URL {
	params["interface"] = cmp.Or(params["interface"], iface)
	return URL{
		Protocol: strings.ToLower(cmp.Or(params["protocol"], "dubbo")), Host: host, Port: port,
		Path: cmp.Or(strings.TrimPrefix(params["path"], "/"), iface), Params: params,
	}
}

// maxText bounds a text in bytes. ZooKeeper accepts at most 1 MiB in one request.
const maxText = 1 << 20

// ParseNode parses the name of a node of ZooKeeper: a URL in form encoding, which is undone once.
func ParseNode(name string) (URL, error) {
	text, err := url.QueryUnescape(name)
	if err != nil {
		return URL{}, fmt.Errorf("node %s: %w", Shorten(name), err)
	}
	return ParseURL(text)
}

// ParseURL parses a URL. Java does not escape values: everything after the first '=' of a parameter is its value, '%',
// '+', '/', '?' and '#' included. A parameter without '=' has no value.
func ParseURL(text string) (parsed URL, err error) {
	if len(text) > maxText {
		return URL{}, fmt.Errorf("URL of %d bytes (limit %d)", len(text), maxText)
	}
	head, query, _ := strings.Cut(text, "?")
	protocol, rest, ok := strings.Cut(head, "://")
	if !ok || protocol == "" {
		return URL{}, fmt.Errorf("%s: want protocol://host:port/path?parameters", Shorten(text))
	}
	address, path, _ := strings.Cut(rest, "/")
	if index := strings.LastIndexByte(address, '@'); index >= 0 { // a user and a password
		address = address[index+1:]
	}
	parsed = URL{Protocol: strings.ToLower(protocol), Path: path, Params: map[string]string{}}
	if parsed.Host, parsed.Port, err = SplitAddress(address); err != nil {
		return URL{}, fmt.Errorf("%s: %w", Shorten(text), err)
	}
	for query != "" {
		var server string
		server, query, _ = strings.Cut(query, "&")
		key, value, _ := strings.Cut(server, "=")
		if key = strings.TrimSpace(key); key != "" {
			parsed.Params[key] = value
		}
	}
	// Dubbo 2.6 writes settings for all services of a provider with a prefix.
	for _, prefixed := range slices.Collect(maps.Keys(parsed.Params)) {
		if key, ok := strings.CutPrefix(prefixed, "default."); ok && key != "" {
			if _, isSet := parsed.Params[key]; !isSet {
				parsed.Params[key] = parsed.Params[prefixed]
			}
		}
	}
	return parsed, nil
}

// SplitAddress splits host and port, which may be missing. Java writes IPv6 addresses without brackets: the part after
// the last colon is the port, as in Java, unless the rest is no address.
func SplitAddress(address string) (host string, port int, err error) {
	host = address
	if colon := strings.LastIndexByte(address, ':'); colon > strings.LastIndexByte(address, ']') &&
		!addressOnlyAsAWhole(address, address[:colon]) {
		host = address[:colon]
		if port, err = strconv.Atoi(address[colon+1:]); err != nil || port < 0 || port > 65535 {
			return "", 0, fmt.Errorf("%q is no port", address[colon+1:])
		}
	}
	return names.Host(host), port, nil
}

// addressOnlyAsAWhole reports whether text is an IP address and its start is none.
func addressOnlyAsAWhole(text, start string) bool {
	_, failure := netip.ParseAddr(text)
	_, part := netip.ParseAddr(start)
	return failure == nil && part != nil
}

// Shorten makes text of a registry fit for a message. Texts that differ stay different, except that invalid bytes all
// become "?".
func Shorten(text string) string {
	const most = 120
	text = strings.ToValidUTF8(text, "?")
	if r := []rune(text); len(r) > most {
		text = fmt.Sprintf("%s…%08x", string(r[:most]), crc32.ChecksumIEEE([]byte(text)))
	}
	return strconv.Quote(text)
}
