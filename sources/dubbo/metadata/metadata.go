// Package metadata asks Dubbo's instances for their metadata, as Dubbo's own consumers do. Instances that keep it themselves, which is the
// default, serve it on one of their ports, in a way that depends on version and protocol: see README.md of package dubbo.
//
// hessian.go is what is needed of hessian2, dubbo.go, triple.go and http.go are the three ways, and lanes.go says whose turn it is.
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

// service is what instances serve their metadata as; its group is the name of the application.
const service = "org.apache.dubbo.metadata.MetadataService"

// Client asks instances. It is safe for concurrent use.
type Client struct {
	lanes *lanes
	ways  func(provider.Instance) []way
}

const (
	// patience is for one way of asking one instance. A port that speaks another protocol than it should says nothing.
	patience = 2 * time.Second
	// maxAnswer is how much of an answer is read.
	maxAnswer = 4 << 20
)

// errNothingYet is of an instance that is about to start: what serves nothing has no revision to be asked for.
var errNothingYet = errors.New("it serves nothing, or not yet")

// New returns a client.
func New() *Client { return &Client{lanes: newLanes(), ways: waysOf} }

// Ask asks an instance for its metadata, which has no revision if the instance does not say that it is of the one that it was asked for.
// how says which way it answered.
func (c *Client) Ask(ctx context.Context, i provider.Instance) (m provider.Metadata, how string, err error) {
	if i.Service == nil {
		return m, "", fmt.Errorf("instance %s:%d of %s does not say how to ask it for its metadata", i.Host, i.Port, i.Application)
	}
	address := net.JoinHostPort(i.Host, strconv.Itoa(i.Service.Port))
	err = c.lanes.ask(ctx, address, func(ctx context.Context) (err error) {
		m, how, err = c.ask(ctx, address, i)
		return err
	})
	if err != nil {
		return provider.Metadata{}, "", err
	}
	return m, how, nil
}

// ask asks an instance in each way that it may have, until one answers.
func (c *Client) ask(ctx context.Context, address string, i provider.Instance) (m provider.Metadata, how string, err error) {
	var reasons []error
	for _, w := range c.ways(i) {
		one, cancel := context.WithTimeout(ctx, patience)
		m, err = w.ask(one, address, i)
		cancel()
		switch {
		case err != nil:
		case m.Revision != "" && m.Revision != i.Revision:
			err = fmt.Errorf("it has revision %s by now", m.Revision)
		case len(m.Services) == 0:
			err = errNothingYet
		}
		if err == nil {
			return m, w.name, nil
		}
		reasons = append(reasons, fmt.Errorf("%s at %s: %w", w.name, address, err))
	}
	return provider.Metadata{}, "", errors.Join(reasons...)
}

// waysOf are those in which an instance that says how it is asked may answer.
func waysOf(i provider.Instance) []way {
	if i.Service.Protocol != "tri" {
		// dubbo-go answers the first one only.
		return []way{{"their own metadata (dubbo)", overDubbo}, {"their own metadata (dubbo, URLs)", overOlderDubbo}}
	}
	all := []way{{"their own metadata (tri, hessian2)", overWrappedTriple}}
	if i.Service.V2 {
		// dubbo-go 3.3.0 says that it has the second version, and has the first.
		all = append([]way{{"their own metadata (http)", overHTTP}, {"their own metadata (tri)", overTriple}}, all...)
	}
	return all
}

// way is one of asking.
type way struct {
	name string
	ask  func(ctx context.Context, address string, i provider.Instance) (provider.Metadata, error)
}

// ofURLs makes metadata of a list of URLs. Instances that answer with one do not say of which revision it is.
func ofURLs(i provider.Instance, urls []string) (provider.Metadata, error) {
	m, skipped := provider.FromURLs(i.Application, urls)
	if len(m.Services) == 0 && len(skipped) > 0 {
		return m, fmt.Errorf("none of %d URLs can be read: %s", len(urls), skipped[0])
	}
	return m, nil
}
