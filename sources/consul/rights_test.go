package consul

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
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
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.change(local, func(f *fakeDomain) { f.set("web", instanceWithID("1")); f.set("api", instanceWithID("2")) })
				w.start(Settings{}, 0)
				pass(time.Minute)
				w.change(local, func(f *fakeDomain) {
					f.shows = c.shows
					f.set("web", instanceWithID("1"))
					f.set("api", instanceWithID("2"))
				})
				pass(time.Hour)
				require.Equal(t, []string{"/1"}, w.instancesOf("web"))
				require.Equal(t, []string{"/2"}, w.instancesOf("api"))
				require.Equal(t, c.state, w.health().State, w.health().Message)
				require.Contains(t, w.health().Message, c.message)

				w.change(local, func(f *fakeDomain) { f.shows = nil; f.set("web", instanceWithID("3")) })
				pass(time.Hour)
				require.Equal(t, []string{"/3"}, w.instancesOf("web"))
				require.Equal(t, sources.Healthy, w.health().State, w.health().Message)
			})
		})
	}
}

func TestRestartWithoutToken_KeepsServices(t *testing.T) {
	for name, shows := range map[string]map[string]bool{"no service is shown": {}, "some is shown": {"api": true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.old = []string{"web", "api"}
				w.change(local, func(f *fakeDomain) {
					f.shows = shows
					f.set("web", instanceWithID("1"))
					f.set("api", instanceWithID("2"))
				})
				w.start(Settings{}, 0)
				pass(time.Hour)
				require.NotContains(t, w.names(), "web", "the services of an earlier run stay")
				require.Contains(t, w.health().Message, "no token is sent")
				w.change(local, func(f *fakeDomain) { f.shows = nil })
				pass(time.Hour)
				require.Equal(t, []string{"/1"}, w.instancesOf("web"))
				require.Equal(t, sources.Healthy, w.health().State, w.health().Message)
			})
		})
	}
}

func TestAnonymousRightsToAll_ConfirmRemovals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.old = []string{"older"}
		w.change(local, func(f *fakeDomain) {
			f.shows = map[string]bool{"": true, "web": true, "api": true, "older": true}
			f.set("web", instanceWithID("1"))
			f.set("api", instanceWithID("2"))
		})
		w.start(Settings{}, 0)
		pass(time.Minute)
		require.Empty(t, w.lastPublished("older"), "it has gone while we were away")
		w.change(local, func(f *fakeDomain) { f.remove("web") })
		pass(time.Hour)
		require.Empty(t, w.instancesOf("web"))
		require.Equal(t, []string{"/2"}, w.instancesOf("api"))
		require.Equal(t, sources.Healthy, w.health().State, w.health().Message)
		w.change(local, func(f *fakeDomain) { f.remove("api") })
		pass(time.Hour)
		require.Empty(t, w.instancesOf("api"))
		require.Equal(t, sources.Healthy, w.health().State, w.health().Message)
	})
}

func TestEmptiedTokenFile_KeepsServices(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) { require.NoError(t, os.WriteFile(file, []byte(token), 0o600)) }
	write("secret\n")
	s := consultest.New(t)
	s.Token = "secret"
	s.Put("web", consultest.Instance("web", "1", "10.0.0.1", 80))
	s.Put("api", consultest.Instance("api", "1", "10.0.0.1", 80))
	r := runSource(t, s, Settings{TokenFile: file, ResetHold: time.Millisecond, Grace: time.Millisecond})
	r.await("it is synced", func() bool { return r.status().Synced })
	write("")
	s.Put("web", consultest.Instance("web", "1", "10.0.0.1", 81)) // watches that are open go on with the token with which they began
	s.Put("new", consultest.Instance("new", "1", "10.0.0.1", 80))
	r.await("it is denied", func() bool { return r.status().State == sources.Denied })
	require.Contains(t, r.status().Message, "no token is sent")
	before := len(s.Asked("/v1/internal/acl/authorize"))
	r.await("it asked again", func() bool { return len(s.Asked("/v1/internal/acl/authorize")) > before })
	require.True(t, r.serves("web") && r.serves("api"))
	write("secret")
	r.await("it is healthy", func() bool { return r.status().State == sources.Healthy && r.serves("new") })
	require.True(t, r.serves("web") && r.serves("api"))
}

func TestWithoutACLs_RemovalsCount(t *testing.T) {
	for name, proxied := range map[string]bool{"plain": false, "through a proxy that is choosy": true} {
		t.Run(name, func(t *testing.T) {
			s := consultest.New(t)
			s.Proxied = proxied
			s.Put("web", consultest.Instance("web", "1", "10.0.0.1", 80))
			s.Put("api", consultest.Instance("api", "1", "10.0.0.1", 80))
			r := runSource(t, s, Settings{Grace: time.Millisecond})
			r.await("it is synced", func() bool { return r.status().Synced && r.serves("web") })
			s.Remove("web")
			r.await("it goes", func() bool { return !r.serves("web") })
			require.True(t, r.serves("api"))
			require.NotEmpty(t, s.Asked("/v1/internal/acl/authorize"))
		})
	}
}

func TestMayRead_Anonymous(t *testing.T) {
	s := consultest.New(t)
	c := dialed(t, s, Settings{})
	rights := []dial.Right{}
	for i := range 200 {
		rights = append(rights, dial.Right{Resource: "service", Name: fmt.Sprint(i)})
	}
	allowed, err := c.mayRead(t.Context(), scope{datacenter: "dc2"}, true, rights)
	require.NoError(t, err)
	require.True(t, allowed)
	require.Len(t, s.Asked("/v1/internal/acl/authorize?dc=dc2"), 1)
	s.Token = "secret"
	t.Setenv("CONSUL_HTTP_TOKEN", "secret")
	c = dialed(t, s, Settings{})
	allowed, err = c.mayRead(t.Context(), scope{}, true, rights)
	require.NoError(t, err)
	require.False(t, allowed, "the token is not sent with such questions")
	s.Proxied = true
	_, err = c.mayRead(t.Context(), scope{}, true, rights)
	require.ErrorContains(t, err, "only GET")
	require.Equal(t, dial.Refused, dial.Classify(err).Kind)
	s.HTTP.Close()
	_, err = c.mayRead(t.Context(), scope{}, true, rights)
	require.Equal(t, dial.Unreachable, dial.Classify(err).Kind)
}

// If the rights are unreadable, the status says so, and no service is quarantined.
func TestUnreadableRights_DegradeStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.mute = api.StatusError{Code: 405, Body: "only GET"}
		w.change(local, func(f *fakeDomain) { f.set("web", instanceWithID("1")); f.set("api", instanceWithID("2")) })
		r := w.start(Settings{}, 0)
		pass(time.Minute)
		w.change(local, func(f *fakeDomain) { f.shows = map[string]bool{"web": true, "api": true}; f.set("web", instances{}) })
		pass(time.Hour)
		require.Equal(t, []string{"/1"}, w.instancesOf("web"))
		require.Equal(t, sources.Degraded, w.health().State)
		require.Contains(t, w.health().Message, "only GET")
		r.mu.Lock()
		defer r.mu.Unlock()
		require.NoError(t, r.scopes[0].services["web"].quarantine)
	})
}

// regains is a world that becomes fully visible just before the query about rights. A policy changes no index of
// services.
type regains struct{ *world }

func (w *regains) mayRead(ctx context.Context, d scope, anonymous bool, rights []dial.Right) (bool, error) {
	w.mu.Lock()
	w.domains[d].shows, w.domains[d].hides, w.domains[d].nodes = nil, false, nil
	w.mu.Unlock()
	return w.world.mayRead(ctx, d, anonymous, rights)
}

// The rights come back between a filtered answer and the query about rights.
func TestRegainedRights_ConfirmNoEarlierAnswer(t *testing.T) {
	for name, lose := range map[string]func(f *fakeDomain){
		"anonymous": func(f *fakeDomain) { f.shows = map[string]bool{"web": false, "api": true} },
		"by node":   func(f *fakeDomain) { f.nodes = map[string]bool{"n1": true} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.change(local, func(f *fakeDomain) {
					f.set("web", instanceOnNode("1", "n0", 50))
					f.set("api", instanceOnNode("1", "n1", 51))
				})
				s := Settings{}
				require.NoError(t, s.complete())
				r := newRun(s, newSinkPublisher(w, w), &regains{w}, 0, newMetrics())
				ctx, cancel := context.WithCancel(context.Background())
				ended := make(chan struct{})
				go func() { defer close(ended); _ = r.loop(ctx) }()
				defer func() { cancel(); <-ended }()
				pass(10 * time.Second)
				w.change(local, func(f *fakeDomain) { lose(f); f.indexes["web"] = f.index })
				lost := 0
				for range 900 {
					pass(time.Second)
					if len(w.instancesOf("web")) == 0 {
						lost++
					}
				}
				require.Zero(t, lost, "seconds without an instance")
			})
		})
	}
}
