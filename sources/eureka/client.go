package eureka

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"

	addresses "tributary/internal/address"
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

// parseAddress reads the address of the servers of a Eureka: eureka://[user:password@]host:8761,host:8761/eureka with
// ?backup=host:8761. Preferred servers come first.
func parseAddress(text string) (addresses.Address, error) {
	parsed, err := addresses.ParseHTTP(Scheme, defaultPort, defaultPath, text)
	if strings.HasSuffix(parsed.Path, "/apps") || strings.Contains(parsed.Path, "/apps/") {
		const message = "address: the path is that of the API, such as %s; /apps, which is below it, is added"
		err = fmt.Errorf(message, defaultPath)
	}
	return parsed, err
}

// serverClient reads servers. It is safe for concurrent use.
type serverClient struct{ *fetch.Client }

// Servers returns the addresses of the servers, preferred ones first.
func (c serverClient) Servers() []string { return c.Client.Servers }

// response is an answer of a server, with the checksum of its text.
type response struct {
	*wire.Answer

	Sum [sha256.Size]byte
}

// Listing reads all applications. If the text is as before, it returns the previous response.
func (c serverClient) Listing(ctx context.Context, server string, previous *response) (*response, error) {
	return c.get(ctx, server, "/apps", previous)
}

// Changes reads the changes of the last minutes, as Listing does. Not every server offers them.
func (c serverClient) Changes(ctx context.Context, server string, previous *response) (*response, error) {
	return c.get(ctx, server, "/apps/delta", previous)
}

func (c serverClient) get(ctx context.Context, server, path string, previous *response) (reply *response, err error) {
	err = c.Get(ctx, server, path, func(text []byte) (err error) {
		sum := sha256.Sum256(text)
		if sum == previous.Sum {
			reply = previous
			return nil
		}
		reply = &response{Sum: sum}
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
