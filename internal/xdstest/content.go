package xdstest

import (
	"slices"
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// Content is a server that answers each type in full, and again after each change, as istiod does: without versions,
// and with an empty response for a type without content. Its script is SotW.
type Content struct {
	Silent bool        // a type without content gets no response
	Nacks  chan string // the reasons of rejections

	mu      sync.Mutex
	content map[string][]*anypb.Any
	changes int
	changed chan struct{} // closed and replaced
	ending  chan struct{} // likewise: ends the streams
}

// NewContent returns a server that has no content yet.
func NewContent() *Content {
	return &Content{
		Nacks: make(chan string, 1000), content: make(map[string][]*anypb.Any),
		changed: make(chan struct{}), ending: make(chan struct{}),
	}
}

// Set replaces the resources of a type.
func (c *Content) Set(typeURL string, resources ...*anypb.Any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.content[typeURL] = resources
	c.changes++
	close(c.changed)
	c.changed = make(chan struct{})
}

// EndStreams ends the open streams.
func (c *Content) EndStreams() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.ending)
	c.ending = make(chan struct{})
}

// SotW serves a stream.
func (c *Content) SotW(_ int, stream SotWStream) error {
	requests, received := make(chan *discoveryv3.DiscoveryRequest), make(chan struct{})
	go func() { // it ends with the stream
		defer close(received)
		for {
			request, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case requests <- request:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	c.mu.Lock()
	ending := c.ending
	c.mu.Unlock()
	var types []string
	for sent := 0; ; {
		c.mu.Lock()
		changes, changed := c.changes, c.changed
		c.mu.Unlock()
		if sent != changes {
			if err := c.send(stream, types...); err != nil {
				return err
			}
			sent = changes
		}
		select {
		case <-received:
			return nil
		case <-ending:
			return nil
		case <-changed:
		case request := <-requests:
			if detail := request.GetErrorDetail(); detail != nil {
				c.Nacks <- detail.GetMessage()
			}
			if typeURL := request.GetTypeUrl(); !slices.Contains(types, typeURL) {
				types = append(types, typeURL)
				if err := c.send(stream, typeURL); err != nil {
					return err
				}
			}
		}
	}
}

// send sends the resources of types.
func (c *Content) send(stream SotWStream, types ...string) error {
	for _, typeURL := range types {
		c.mu.Lock()
		resources, exists := c.content[typeURL]
		c.mu.Unlock()
		if !exists && c.Silent {
			continue
		}
		if err := stream.Send(&discoveryv3.DiscoveryResponse{
			TypeUrl: typeURL, VersionInfo: "2026", Nonce: "always the same", Resources: resources,
		}); err != nil {
			return err
		}
	}
	return nil
}
