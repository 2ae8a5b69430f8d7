package attack

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"

	"tributary/bench/wire"
)

// The types that attackers subscribe to in the role of Envoys.
const (
	clusters  = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	endpoints = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	listeners = "type.googleapis.com/envoy.config.listener.v3.Listener"
)

// rejectAsEnvoy is a sidecar of its own that asks for all clusters and listeners and for the endpoints of all clusters,
// and rejects whatever comes as Envoys do: by the name of one of the resources, each time of another. It does so again
// and again, 100 times a second for each type.
func rejectAsEnvoy(ctx context.Context, r *run, n int) error {
	s, hangUp, err := r.stream(ctx, n, wire.MethodDelta)
	if err != nil {
		return err
	}
	defer hangUp()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	host := fmt.Sprintf("127.0.0.%d", 2+n%4)
	node := wire.Node(fmt.Sprintf("sidecar~%s~envoy-%d.bench~bench.svc.cluster.local", host, n), map[string]string{
		"NAMESPACE": "bench", "INTERCEPTION_MODE": "NONE", "ISTIO_VERSION": "1.27.9",
	})
	first := wire.Bytes(wire.Subscription{Delta: true, Node: node, TypeURL: clusters}.First())
	if err := s.SendMsg(&first); err != nil {
		return drain(s)
	}
	responses, ended := make(chan came, 16), make(chan error, 1)
	go func() { ended <- listen(ctx, s, responses) }()
	critics := make(map[string]*critic) // by type
	err = each(ctx, 100, func() error {
		select {
		case err := <-ended:
			return err
		case c := <-responses:
			if critics[c.typeURL] == nil {
				critics[c.typeURL] = &critic{}
				if err := ask(s, c); err != nil {
					return err
				}
			}
			critics[c.typeURL].hear(c)
		default:
		}
		for typeURL, critic := range critics {
			nack := wire.Bytes(rejection(typeURL, critic.nonce, critic.complaint()))
			r.sent.Add(1)
			if err := s.SendMsg(&nack); err != nil {
				return err
			}
		}
		return nil
	})
	hangUp()
	return err
}

// ask sends the subscriptions of an Envoy that has clusters.
func ask(s grpc.ClientStream, c came) error {
	if c.typeURL != clusters {
		return nil
	}
	subscriptions := []wire.Subscription{{Delta: true, TypeURL: listeners}}
	var names []string
	for _, name := range c.names {
		if strings.HasPrefix(name, "outbound|") {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		subscriptions = append(subscriptions, wire.Subscription{Delta: true, TypeURL: endpoints, Names: names})
	}
	for _, sub := range subscriptions {
		request := wire.Bytes(sub.First())
		if err := s.SendMsg(&request); err != nil {
			return err
		}
	}
	return nil
}

// critic rejects the resources of a type.
type critic struct {
	nonce      string
	names      []string // of the last response
	complaints int
}

func (c *critic) hear(response came) {
	c.nonce = response.nonce
	if len(response.names) > 0 {
		c.names = response.names
	}
}

func (c *critic) complaint() string {
	if len(c.names) == 0 {
		return "no"
	}
	c.complaints++
	return "Error adding/updating: " + c.names[c.complaints%len(c.names)] + ": no"
}

// came is the content of a response.
type came struct {
	typeURL, nonce string
	names          []string
}

// listen sends the content of each response until the stream ends.
func listen(ctx context.Context, s grpc.ClientStream, to chan<- came) error {
	for {
		var got wire.Response
		if err := s.RecvMsg(&got); err != nil {
			return err
		}
		if err := got.Scan(); err != nil {
			return err
		}
		names, _, err := got.Names()
		if err != nil {
			return err
		}
		c := came{got.TypeURL, got.Nonce, names}
		got.Free()
		select {
		case to <- c:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
