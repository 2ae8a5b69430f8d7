package kube

import (
	"context"
	"fmt"
	"net/http"

	"tributary/internal/worker"
)

// maxPluginRequests bounds the requests that wait for an exec plugin at once.
const maxPluginRequests = 100

// pluginTransport lets a request end while the exec plugin that makes its credentials hangs. client-go starts the
// plugin without a context, so the request itself goes on until the plugin ends.
type pluginTransport struct {
	transport http.RoundTripper
	command   string        // starts the plugin
	waiting   chan struct{} // has one element for each request without an answer
}

func newPluginTransport(transport http.RoundTripper, command string) *pluginTransport {
	return &pluginTransport{transport, command, make(chan struct{}, maxPluginRequests)}
}

// WrappedRoundTripper returns the transport with the connections.
func (t *pluginTransport) WrappedRoundTripper() http.RoundTripper { return t.transport }

// RoundTrip implements http.RoundTripper.
func (t *pluginTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	select {
	case t.waiting <- struct{}{}:
	default:
		return nil, fmt.Errorf("%d requests wait for the exec plugin %s of the kubeconfig", maxPluginRequests, t.command)
	}
	type answer struct {
		response *http.Response
		err      error
	}
	group, ctx := worker.New(request.Context())
	answers := make(chan answer)
	group.Go(func() {
		//nolint:bodyclose // the caller closes the body, or the code below does
		response, err := t.transport.RoundTrip(request)
		<-t.waiting
		select {
		case answers <- answer{response, err}:
		case <-ctx.Done():
			if response != nil {
				_ = response.Body.Close()
			}
		}
	})
	select {
	case answer := <-answers:
		return answer.response, answer.err
	case <-ctx.Done():
		return nil, fmt.Errorf("no answer, or the exec plugin %s of the kubeconfig hangs: %w", t.command, context.Cause(ctx))
	}
}
