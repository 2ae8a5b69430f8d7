package identity

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Parse decodes the proofs of a hypothetical client in the format of String, and ip:ADDRESS and socket. It verifies no
// proof, and is only for checks of access rules.
func Parse(proofs []string) (*Identity, error) {
	client := &Identity{}
	for _, proof := range proofs {
		kind, value, _ := strings.Cut(proof, ":")
		var err error
		switch {
		case proof == "socket":
			client.Socket = true
		case value == "":
			err = errFormat
		case kind == "dns":
			client.DNS = append(client.DNS, strings.ToLower(value))
		case kind == "subject":
			client.Subject = value
		case kind == "token":
			client.Token = value
		case kind == "jwt":
			client.JWT = cmp.Or(client.JWT, &JWT{})
			client.JWT.Issuer, client.JWT.Subject, _ = strings.Cut(value, "|")
		case kind == "audience":
			client.JWT = cmp.Or(client.JWT, &JWT{})
			client.JWT.Audience = append(client.JWT.Audience, value)
		case kind == "ip":
			address, invalid := netip.ParseAddr(value)
			if invalid != nil {
				err = errors.New("want an IP address behind ip:, such as ip:10.1.2.3")
			}
			client.Address = address.Unmap().WithZone("")
		case strings.HasPrefix(value, "//"):
			client.URIs = append(client.URIs, proof)
		default:
			err = errFormat
		}
		if err != nil {
			return nil, fmt.Errorf("identity %q: %w", proof, err)
		}
	}
	return client, nil
}

var errFormat = errors.New("want a URI, dns:NAME, subject:NAME, token:NAME, jwt:ISSUER|SUBJECT, " +
	"audience:NAME of a JWT, ip:ADDRESS or socket")
