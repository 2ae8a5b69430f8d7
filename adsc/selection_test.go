package adsc_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/adsc"
	"tributary/internal/xdstest"
)

// TestSotW_ChangesNames: on a stream with an earlier name, an empty list unsubscribes.
func TestSotW_ChangesNames(t *testing.T) {
	wildcard := []string(nil)
	for name, c := range map[string]struct {
		steps [][]string // subscribed names, in order
		want  []string   // requests
	}{
		"others":                {[][]string{{"b", "a"}, {"c", "b"}}, []string{"[a b]", "[b c]"}},
		"from all to some":      {[][]string{wildcard, {"a"}}, []string{"", "[a]"}},
		"from some to all":      {[][]string{{"a"}, wildcard}, []string{"[a]", "[*]"}},
		"to all and back":       {[][]string{wildcard, {"a"}, wildcard, {"a"}}, []string{"", "[a]", "[*]", "[a]"}},
		"all, and some by name": {[][]string{{"*", "a"}, {"*"}}, []string{"[* a]", "[*]"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := xdstest.ListenSotW(t)
			client := run(t, quiet(server.Address, subscribe(typeB, accept), subscribe(typeA, accept, c.steps[0]...)))
			stream := server.Next()
			stream.Receive()
			for i, names := range c.steps {
				client.subscribe(subscribe(typeA, accept, names...))
				stream.Expect(strings.TrimSpace("A " + c.want[i]))
			}
		})
	}
}

// TestSotW_OmitsVersionOfOtherResources has a server that restarts: the next stream sends no version of a response that was rejected, or
// that was for other names.
func TestSotW_OmitsVersionOfOtherResources(t *testing.T) {
	t.Run("for names that change between the streams", func(t *testing.T) {
		server := xdstest.ListenSotW(t)
		config := quiet(server.Address, subscribe(typeA, accept, "a"))
		config.Backoff = retries(1)
		var client *adsc.Client
		config.Hooks.Failed = func(error, time.Duration) {
			assert.NoError(t, client.Subscribe(subscribe(typeA, accept, "a", "b")))
		}
		client, err := adsc.New(config)
		require.NoError(t, err)
		start(t, client)
		stream := server.Next()
		stream.Receive()
		stream.Exchange(response(t, typeA, "v7", "n7", "a"))
		stream.End(errRestart)
		server.Next().Expect("node n1 A [a b]") // the server would send no response for a version that it knows
	})
	t.Run("of a response to the names before", func(t *testing.T) {
		server := xdstest.ListenSotW(t)
		config := quiet(server.Address, subscribe(typeA, accept, "a"))
		config.Backoff = retries(1)
		client := run(t, config)
		stream := server.Next()
		stream.Receive()
		client.subscribe(subscribe(typeA, accept, "a", "b"))
		stream.Expect("A [a b]")
		stream.Send(response(t, typeA, "v7", "n7", "a"))
		stream.Expect("A [a b] version v7 nonce n7")
		stream.End(errRestart)
		server.Next().Expect("node n1 A [a b]")
	})
	t.Run("of a rejected response", func(t *testing.T) {
		server := xdstest.ListenSotW(t)
		config := quiet(server.Address, subscribe(typeA, func(_ context.Context, r *adsc.Response) error {
			if r.Version == "bad" {
				return errRefused
			}
			return nil
		}))
		config.Backoff = retries(1)
		run(t, config)
		stream := server.Next()
		stream.Receive()
		stream.Exchange(response(t, typeA, "good", "n1"))
		stream.Exchange(response(t, typeA, "bad", "n2"))
		stream.End(errRestart)
		server.Next().Expect("node n1 A version good")
	})
}
