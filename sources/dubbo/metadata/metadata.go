// Package metadata asks Dubbo's instances for their metadata, as Dubbo's own consumers do. By default instances serve
// it on one of their ports, by a method that depends on version and protocol: see README.md of package dubbo.
//
// hessian.go reads and writes hessian2, dubbo.go, triple.go and http.go are the three methods, and limiter.go bounds
// concurrent asks.
package metadata

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"tributary/sources/dubbo/provider"
)

// service is the interface of the metadata service. Its group is the name of the application.
const service = "org.apache.dubbo.metadata.MetadataService"

// Client asks instances. It is safe for concurrent use.
type Client struct {
	limiter *askLimiter
	queries func(provider.Instance) []query
}

const (
	// patience is the timeout of one method at one instance. A port with another protocol does not answer.
	patience = 2 * time.Second
	// maxAnswer bounds an answer in bytes.
	maxAnswer = 4 << 20
)

// errNothingYet is the error of an instance that is still starting: one without services would have no revision.
var errNothingYet = errors.New("no services registered (yet)")

// New returns a client.
func New() *Client { return &Client{limiter: newAskLimiter(), queries: queriesOf} }

// Ask asks an instance for its metadata, which has no revision if the answer names none. how names the method that
// succeeded.
func (c *Client) Ask(
	ctx context.Context, i provider.Instance,
) (metadata provider.Metadata, protocol string, err error) {
	if i.Service == nil {
		return metadata, "", fmt.Errorf("instance %s:%d of %s does not say how to ask it for its metadata", i.Host, i.Port,
			i.Application)
	}
	address := net.JoinHostPort(i.Host, strconv.Itoa(i.Service.Port))
	err = c.limiter.ask(ctx, address, func(ctx context.Context) (err error) {
		metadata, protocol, err = c.ask(ctx, address, i)
		return err
	})
	if err != nil {
		return provider.Metadata{}, "", err
	}
	return metadata, protocol, nil
}

// ask tries the methods of an instance one after another until one succeeds.
func (c *Client) ask(ctx context.Context, address string, i provider.Instance) (metadata provider.Metadata, how string,
	err error,
) {
	var reasons []error
	for _, query := range c.queries(i) {
		attempt, cancel := context.WithTimeout(ctx, patience)
		metadata, err = query.ask(attempt, address, i)
		cancel()
		switch {
		case err != nil:
		case metadata.Revision != "" && metadata.Revision != i.Revision:
			err = fmt.Errorf("now has revision %s", metadata.Revision)
		case len(metadata.Services) == 0:
			err = errNothingYet
		}
		if err == nil {
			return metadata, query.name, nil
		}
		reasons = append(reasons, fmt.Errorf("%s at %s: %w", query.name, address, err))
	}
	return provider.Metadata{}, "", errors.Join(reasons...)
}

// queriesOf returns the methods that an instance with a metadata service may answer by.
func queriesOf(i provider.Instance) []query {
	if i.Service.Protocol != "tri" {
		// dubbo-go answers the first one only.
		return []query{{"their own metadata (dubbo)", overDubbo}, {"their own metadata (dubbo, URLs)", overOlderDubbo}}
	}
	queries := []query{{"their own metadata (tri, hessian2)", overWrappedTriple}}
	if i.Service.V2 {
		// dubbo-go 3.3.0 announces the second version but has the first.
		v2 := []query{{"their own metadata (http)", overHTTP}, {"their own metadata (tri)", overTriple}}
		return append(v2, queries...)
	}
	return queries
}

// query is a method of asking.
type query struct {
	name string
	ask  func(ctx context.Context, address string, i provider.Instance) (provider.Metadata, error)
}

// ofURLs makes metadata of a value that is a list of URLs, which names no revision.
func ofURLs(i provider.Instance, list any) (provider.Metadata, error) {
	urls, err := stringsOf(list)
	if err != nil {
		return provider.Metadata{}, err
	}
	metadata, skipped := provider.FromURLs(i.Application, urls)
	if len(metadata.Services) == 0 && len(skipped) > 0 {
		return metadata, fmt.Errorf("none of %d URLs can be read: %s", len(urls), skipped[0])
	}
	return metadata, nil
}
