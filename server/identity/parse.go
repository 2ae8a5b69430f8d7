package identity

import (
	"fmt"
	"net/netip"
	"strings"
)

// Parse makes an identity of texts as String writes them, such as spiffe://cluster.local/ns/prod/sa/web, dns:web.example, subject:CN=web,
// token:ci and jwt:https://issuer|web, besides ip:10.1.2.3 and socket. It is for looking at rules: nothing is proven.
func Parse(texts []string) (*Identity, error) {
	i := &Identity{}
	for _, text := range texts {
		sort, rest, _ := strings.Cut(text, ":")
		switch {
		case text == "socket":
			i.Socket = true
		case rest == "":
			return nil, fmt.Errorf("identity %q: want a URI, dns:NAME, subject:NAME, token:NAME, jwt:ISSUER|SUBJECT, ip:ADDRESS or socket", text)
		case sort == "dns":
			i.DNS = append(i.DNS, strings.ToLower(rest))
		case sort == "subject":
			i.Subject = rest
		case sort == "token":
			i.Token = rest
		case sort == "jwt":
			issuer, subject, _ := strings.Cut(rest, "|")
			i.JWT = &JWT{Issuer: issuer, Subject: subject}
		case sort == "ip":
			addr, err := netip.ParseAddr(rest)
			if err != nil {
				return nil, fmt.Errorf("identity %q: want an IP address behind ip:, such as ip:10.1.2.3", text)
			}
			i.Address = addr.Unmap()
		case strings.HasPrefix(rest, "//"):
			i.URIs = append(i.URIs, text)
		default:
			return nil, fmt.Errorf("identity %q: want a URI, dns:NAME, subject:NAME, token:NAME, jwt:ISSUER|SUBJECT, ip:ADDRESS or socket", text)
		}
	}
	return i, nil
}
