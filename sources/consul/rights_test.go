package consul

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/consul/consultest"
	"tributary/sources/consul/dial"
)

func TestLostToken_KeepsServices(t *testing.T) {
	for name, c := range map[string]struct {
		shows   map[string]bool
		state   sources.State
		message string
	}{
		"no service is shown": {map[string]bool{}, sources.Denied, "no token is sent, and Consul shows nothing to anonymous requests: set " +
			"tokenFile or CONSUL_HTTP_TOKEN"},
		"some is shown": {
			map[string]bool{"api": true},
			sources.Degraded,
			"service web: no token is sent, and Consul does not show its instances",
		},
	} {
		t.Run(name, func(t *testing.T) {
			testWorld(t, func(t *testing.T, world *world) {
				world.set("web", "1")
				world.set("api", "2")
				world.start()
				pass(time.Minute)
				world.Change(func() {
					world.Shows = c.shows
					world.List("web", "1")
					world.List("api", "2")
				})
				pass(time.Hour)
				world.requireInstances("web", "1")
				world.requireInstances("api", "2")
				world.requireState(c.state, c.message)

				world.Change(func() { world.Shows = nil; world.List("web", "3") })
				pass(time.Hour)
				world.requireInstances("web", "3")
				world.requireState(sources.Healthy)
			})
		})
	}
}

func TestRestartWithoutToken_KeepsServices(t *testing.T) {
	eachWorld(t, map[string]map[string]bool{
		"no service is shown": {}, "some is shown": {"api": true},
	}, func(t *testing.T, world *world, shows map[string]bool) {
		world.old = []string{"web", "api"}
		world.Change(func() {
			world.Shows = shows
			world.List("web", "1")
			world.List("api", "2")
		})
		world.start()
		pass(time.Hour)
		require.NotContains(t, world.names(), "web", "the services of an earlier run stay")
		require.Contains(t, world.health().Message, "no token is sent")
		world.Change(func() { world.Shows = nil })
		pass(time.Hour)
		world.requireInstances("web", "1")
		world.requireState(sources.Healthy)
	})
}

func TestAnonymousRightsToAll_ConfirmRemovals(t *testing.T) {
	testWorld(t, func(t *testing.T, world *world) {
		world.old = []string{"older"}
		world.Change(func() {
			world.Shows = map[string]bool{"": true, "web": true, "api": true, "older": true}
			world.List("web", "1")
			world.List("api", "2")
		})
		world.start()
		pass(time.Minute)
		world.requireWithdrawn("older") // it has gone while we were away
		world.Remove("web")
		pass(time.Hour)
		world.requireInstances("web")
		world.requireInstances("api", "2")
		world.requireState(sources.Healthy)
		world.Remove("api")
		pass(time.Hour)
		world.requireInstances("api")
		world.requireState(sources.Healthy)
	})
}

func TestEmptiedTokenFile_KeepsServices(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) { require.NoError(t, os.WriteFile(file, []byte(token), 0o600)) }
	write("secret\n")
	s := consultest.New(t)
	s.Token = "secret"
	s.Register("web", "1")
	s.Register("api", "1")
	r := runSource(t, s, Settings{TokenFile: file, ResetHold: time.Millisecond, Grace: time.Millisecond})
	r.awaitServed()
	write("")
	s.Put("web", consultest.Instance("web", "1", "10.0.0.1", 81)) // watches that are open go on with the token with which they began
	s.Register("new", "1")
	r.AwaitState(sources.Denied)
	require.Contains(t, r.Status().Message, "no token is sent")
	r.awaitRequests(s, 1, "/v1/internal/acl/authorize")
	require.True(t, r.serves("web") && r.serves("api"))
	write("secret")
	r.AwaitState(sources.Healthy)
	r.awaitServed("new")
	require.True(t, r.serves("web") && r.serves("api"))
}

// onlyGet is a proxy that refuses all methods but GET.
func onlyGet(response http.ResponseWriter, request *http.Request) bool {
	if request.Method == http.MethodGet {
		return false
	}
	http.Error(response, "only GET", http.StatusMethodNotAllowed)
	return true
}

func TestWithoutACLs_RemovalsCount(t *testing.T) {
	for name, proxied := range map[string]bool{"plain": false, "through a proxy that is choosy": true} {
		t.Run(name, func(t *testing.T) {
			server := consultest.New(t)
			if proxied {
				server.Proxy = onlyGet
			}
			server.Register("web", "1")
			server.Register("api", "1")
			running := runSource(t, server, Settings{Grace: time.Millisecond})
			running.awaitServed("web")
			server.Remove("web")
			running.Await("it goes", func() bool { return !running.serves("web") })
			require.True(t, running.serves("api"))
			require.NotEmpty(t, server.Asked("/v1/internal/acl/authorize"))
		})
	}
}

func TestMayRead_Anonymous(t *testing.T) {
	server := consultest.New(t)
	catalog := dialed(t, server, Settings{})
	rights := []dial.Right{}
	for i := range 200 {
		rights = append(rights, dial.Right{Resource: "service", Name: fmt.Sprint(i)})
	}
	allowed, err := catalog.mayRead(t.Context(), scope{datacenter: "dc2"}, true, rights)
	require.NoError(t, err)
	require.True(t, allowed)
	require.Len(t, server.Asked("/v1/internal/acl/authorize?dc=dc2"), 1)
	server.Token = "secret"
	t.Setenv("CONSUL_HTTP_TOKEN", "secret")
	catalog = dialed(t, server, Settings{})
	allowed, err = catalog.mayRead(t.Context(), scope{}, true, rights)
	require.NoError(t, err)
	require.False(t, allowed, "the token is not sent with such questions")
	server.Edit(func() { server.Proxy = onlyGet })
	_, err = catalog.mayRead(t.Context(), scope{}, true, rights)
	require.ErrorContains(t, err, "only GET")
	require.Equal(t, dial.Refused, dial.Classify(err).Kind)
	server.HTTP.Close()
	_, err = catalog.mayRead(t.Context(), scope{}, true, rights)
	require.Equal(t, dial.Unreachable, dial.Classify(err).Kind)
}

// If the rights are unreadable, the status says so, and no service is quarantined.
func TestUnreadableRights_DegradeStatus(t *testing.T) {
	testWorld(t, func(t *testing.T, w *world) {
		w.mute = api.StatusError{Code: 405, Body: "only GET"}
		w.set("web", "1")
		w.set("api", "2")
		run := w.start()
		pass(time.Minute)
		w.Change(func() { w.Shows = map[string]bool{"web": true, "api": true}; w.SetService("web", nil) })
		pass(time.Hour)
		w.requireInstances("web", "1")
		w.requireState(sources.Degraded, "only GET")
		run.mu.Lock()
		defer run.mu.Unlock()
		require.NoError(t, run.scopes[0].services["web"].quarantine)
	})
}

// regains is a world that becomes fully visible just before the query about rights. A policy changes no index of
// services.
type regains struct{ *world }

func (r *regains) mayRead(ctx context.Context, d scope, anonymous bool, rights []dial.Right) (bool, error) {
	datacenter := r.scopes[d]
	datacenter.Edit(func() { datacenter.Shows, datacenter.Nodes = nil, nil })
	return r.world.mayRead(ctx, d, anonymous, rights)
}

// The rights come back between a filtered answer and the query about rights.
func TestRegainedRights_ConfirmNoEarlierAnswer(t *testing.T) {
	eachWorld(t, map[string]func(f *datacenter){
		"anonymous": func(f *datacenter) { f.Shows = map[string]bool{"web": false, "api": true} },
		"by node":   func(f *datacenter) { f.Nodes = map[string]bool{"n1": true} },
	}, func(_ *testing.T, w *world, lose func(f *datacenter)) {
		w.set("web", "1 n0 50")
		w.set("api", "1 n1 51")
		w.startWith(&regains{w}, w)
		pass(10 * time.Second)
		w.Change(func() { lose(w.datacenter); w.Indexes["web"] = w.Index })
		for range 900 {
			pass(time.Second)
			w.requireInstances("web", "1")
		}
	})
}
