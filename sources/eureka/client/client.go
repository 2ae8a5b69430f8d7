// Package client reads the servers of a Eureka.
package client

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"tributary/internal/address"
	"tributary/internal/fetch"
	"tributary/sources/eureka/wire"
)

// The schemes of addresses of a Eureka.
const (
	Scheme       = "eureka"
	SecureScheme = "eureka+https"
)

const (
	defaultPort = "8761"
	defaultPath = "/eureka"
)

// ParseAddress reads the address of the servers of a Eureka: eureka://[user:password@]host:8761,host:8761/eureka with
// ?backup=host:8761. Preferred servers come first.
func ParseAddress(text string) (address.Address, error) {
	parsed, err := address.ParseHTTP(Scheme, defaultPort, defaultPath, text)
	if strings.HasSuffix(parsed.Path, "/apps") || strings.Contains(parsed.Path, "/apps/") {
		const message = "address: the path is that of the API, such as %s; /apps, which is below it, is added"
		err = fmt.Errorf(message, defaultPath)
	}
	return parsed, err
}

// Client reads servers. It is safe for concurrent use.
type Client struct{ *fetch.Client }

// Servers returns the addresses of the servers, preferred ones first.
func (c Client) Servers() []string { return c.Client.Servers }

// Reply is an answer of a server, with the checksum of its text.
type Reply struct {
	*wire.Answer

	Sum [sha256.Size]byte
}

// Listing reads all applications. If the text is as before, it returns the previous reply.
func (c Client) Listing(ctx context.Context, server string, previous *Reply) (*Reply, error) {
	return c.get(ctx, server, "/apps", previous)
}

// Changes reads the changes of the last minutes, as Listing does. Not every server offers them.
func (c Client) Changes(ctx context.Context, server string, previous *Reply) (*Reply, error) {
	return c.get(ctx, server, "/apps/delta", previous)
}

func (c Client) get(ctx context.Context, server, path string, previous *Reply) (reply *Reply, err error) {
	err = c.Get(ctx, server, path, func(text []byte) (err error) {
		sum := sha256.Sum256(text)
		if sum == previous.Sum {
			reply = previous
			return nil
		}
		reply = &Reply{Sum: sum}
		reply.Answer, err = wire.Decode(text)
		return err
	})
	var refusal *fetch.StatusError
	if errors.As(err, &refusal) && refusal.Code == http.StatusForbidden {
		// Netflix' server answers so for its first five minutes if it found no peer.
		err = fmt.Errorf("%w, or it has just started", err)
	}
	return reply, err
}
