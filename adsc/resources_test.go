package adsc_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/adsc"
)

// watched is a client in a bubble with a handler that returns reject, and its reports of absent resources.
type watched struct {
	client  *adsc.Client
	mu      sync.Mutex
	reports [][]string // names that were reported absent; guarded by mu
	reject  error
}

func (w *watched) absent() [][]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.reports)
}

func (w *watched) states(typeURL string) map[string]string {
	synctest.Wait()
	states := map[string]string{}
	for _, r := range w.client.Resources(typeURL) {
		states[r.Name] = r.State.String()
		if r.Version != "" {
			states[r.Name] += " " + r.Version
		}
	}
	return states
}

func watch(t *testing.T, mode adsc.Mode, typeURL string, run script, delta deltaScript, names ...string) *watched {
	w := &watched{}
	cfg := bubbled(t, quiet("", adsc.Subscription{
		TypeURL: typeURL, Names: names,
		Handler: func(context.Context, *adsc.Response) error { return w.reject },
		Absent: func(_ context.Context, names []string) {
			slices.Sort(names)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.reports = append(w.reports, names)
		},
	}), run, delta)
	cfg.Mode, cfg.Backoff = mode, retries(10)
	client, err := adsc.New(cfg)
	require.NoError(t, err)
	w.client = client
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- client.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-result, context.Canceled)
	})
	return w
}

func TestResourcesByStateOfTheWorld(t *testing.T) {
	cluster := func(name string) *anypb.Any { return packed(t, &clusterv3.Cluster{Name: name}) }
	endpoints := func(name string) *anypb.Any { return packed(t, &endpointv3.ClusterLoadAssignment{ClusterName: name}) }
	serving := func(typeURL string, send <-chan []*anypb.Any) script {
		return func(_ int, s stream) error {
			for {
				select {
				case <-s.Context().Done():
					return nil
				case resources, open := <-send:
					if !open {
						return errRestart
					}
					if err := s.Send(&discoveryv3.DiscoveryResponse{TypeUrl: typeURL, VersionInfo: "v1", Nonce: "n", Resources: resources}); err != nil {
						return err
					}
				}
			}
		}
	}
	t.Run("of a type that comes as a whole", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			send := make(chan []*anypb.Any)
			w := watch(t, adsc.SotW, adsc.ClusterType, serving(adsc.ClusterType, send), nil, "a", "b", "c")
			assert.Equal(t, map[string]string{"a": "requested", "b": "requested", "c": "requested"}, w.states(adsc.ClusterType))
			send <- []*anypb.Any{cluster("a"), cluster("b"), cluster("unasked")}
			assert.Equal(t, map[string]string{"a": "held v1", "b": "held v1", "c": "requested"}, w.states(adsc.ClusterType),
				"c may have been asked for later")
			time.Sleep(14 * time.Second)
			synctest.Wait()
			assert.Empty(t, w.absent())
			time.Sleep(2 * time.Second)
			assert.Equal(t, map[string]string{"a": "held v1", "b": "held v1", "c": "absent"}, w.states(adsc.ClusterType))
			assert.Equal(t, [][]string{{"c"}}, w.absent())

			send <- []*anypb.Any{cluster("c"), cluster("b")}
			assert.Equal(t, map[string]string{"a": "absent", "b": "held v1", "c": "held v1"}, w.states(adsc.ClusterType))
			assert.Equal(t, [][]string{{"c"}, {"a"}}, w.absent())

			w.reject = errRefused
			send <- []*anypb.Any{cluster("c")}
			assert.Equal(t, map[string]string{"a": "absent", "b": "held v1", "c": "rejected v1"}, w.states(adsc.ClusterType),
				"a rejected response changes no resource")
			require.ErrorIs(t, w.client.Resources(adsc.ClusterType)[2].Err, errRefused)
			w.reject = &adsc.RejectedError{Names: []string{"c"}, Err: errRefused}
			send <- []*anypb.Any{cluster("c"), cluster("a")}
			assert.Equal(t, map[string]string{"a": "held v1", "b": "absent", "c": "rejected v1"}, w.states(adsc.ClusterType))
			w.reject = nil

			send <- nil
			assert.Equal(t, map[string]string{"a": "absent", "b": "absent", "c": "absent"}, w.states(adsc.ClusterType))
			time.Sleep(time.Minute)
			synctest.Wait()
			assert.Equal(t, [][]string{{"c"}, {"a"}, {"b"}, {"a", "c"}}, w.absent(), "each is reported once")
		})
	})
	t.Run("of a type with partial responses", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			send := make(chan []*anypb.Any)
			w := watch(t, adsc.SotW, adsc.EndpointType, serving(adsc.EndpointType, send), nil, "a", "b")
			send <- []*anypb.Any{endpoints("a")}
			send <- []*anypb.Any{endpoints("b")}
			assert.Equal(t, map[string]string{"a": "held v1", "b": "held v1"}, w.states(adsc.EndpointType), "absence is no removal")
			assert.Empty(t, w.absent())
		})
	})
	t.Run("the wait restarts with each stream", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			send := make(chan []*anypb.Any)
			streams := 0
			w := watch(t, adsc.SotW, adsc.ClusterType, func(n int, s stream) error {
				streams++
				if n < 5 {
					pause(s, 10*time.Second)
					return errRestart
				}
				return serving(adsc.ClusterType, send)(n, s)
			}, nil, "a")
			time.Sleep(60 * time.Second)
			assert.Equal(t, map[string]string{"a": "requested"}, w.states(adsc.ClusterType))
			assert.Equal(t, 6, streams)
			time.Sleep(10 * time.Second)
			assert.Equal(t, map[string]string{"a": "absent"}, w.states(adsc.ClusterType))
		})
	})
}

func TestResourcesByDelta(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		send := make(chan *discoveryv3.DeltaDiscoveryResponse)
		w := watch(t, adsc.Delta, typeA, nil, func(_ int, s deltaStream) error {
			for {
				select {
				case <-s.Context().Done():
					return nil
				case r := <-send:
					if r == nil {
						return errRestart
					}
					if err := s.Send(r); err != nil {
						return err
					}
				}
			}
		}, "a", "b", "c")
		send <- deltaResponse(t, "n1", "v", "a@1", "-b")
		assert.Equal(t, map[string]string{"a": "held 1", "b": "absent", "c": "requested"}, w.states(typeA))
		assert.Equal(t, [][]string{{"b"}}, w.absent())
		time.Sleep(16 * time.Second)
		assert.Equal(t, map[string]string{"a": "held 1", "b": "absent", "c": "absent"}, w.states(typeA))
		assert.Equal(t, [][]string{{"b"}, {"c"}}, w.absent())

		w.reject = &adsc.RejectedError{Names: []string{"a"}, Err: errRefused}
		send <- deltaResponse(t, "n2", "v", "a@2", "b@1")
		assert.Equal(t, map[string]string{"a": "rejected 1", "b": "held 1", "c": "absent"}, w.states(typeA), "it keeps the last accepted version")
		w.reject = nil
		send <- nil // the stream ends, and the next one is resumed
		assert.Equal(t, map[string]string{"a": "rejected 1", "b": "held 1", "c": "absent"}, w.states(typeA))
		send <- deltaResponse(t, "n1", "v", "a@3", "-b", "-c")
		assert.Equal(t, map[string]string{"a": "held 3", "b": "absent", "c": "absent"}, w.states(typeA))

		require.NoError(t, w.client.Subscribe(adsc.Subscription{TypeURL: typeA, Names: []string{"a", "d"}, Handler: accept}))
		assert.Equal(t, map[string]string{"a": "held 3", "d": "requested"}, w.states(typeA))
		assert.Equal(t, [][]string{{"b"}, {"c"}, {"b"}}, w.absent())
		assert.Empty(t, w.client.Resources(typeB))
	})
}

// TestInitialVersion_IsNotAbsent: a server that has the same version sends no resource.
func TestInitialVersion_IsNotAbsent(t *testing.T) {
	for _, given := range []bool{true, false} {
		name := map[bool]string{true: "given as versions", false: "had through all"}[given]
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var absent [][]string
				sub := adsc.Subscription{TypeURL: typeA, Handler: accept, Absent: func(_ context.Context, n []string) { absent = append(absent, n) }}
				if given {
					sub.Names, sub.Versions = []string{"a"}, map[string]string{"a": "1"}
				}
				cfg := quiet("", sub)
				cfg.Mode, cfg.Backoff = adsc.Delta, retries(10)
				var c *adsc.Client
				cfg = bubbled(t, cfg, nil, func(n int, s deltaStream) error {
					if _, err := honest(t, s, "n", map[string]string{"a": "1"}); err != nil {
						return err
					}
					if !given && n == 0 {
						_, _ = s.Recv()
						return errRestart
					}
					pause(s, time.Hour)
					return nil
				}, allowPings)
				cfg.Hooks.Failed = func(error, time.Duration) { // between two streams
					named := sub
					named.Names = []string{"a"}
					assert.NoError(t, c.Subscribe(named))
				}
				c, err := adsc.New(cfg)
				require.NoError(t, err)
				start(t, c)
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.Empty(t, absent, "the server has it, and so has the handler")
				assert.Equal(t, "held", c.Resources(typeA)[0].State.String())
			})
		})
	}
}

// TestNameOf_MayPanicOrCallClient: it is not called under a lock.
func TestNameOf_MayPanicOrCallClient(t *testing.T) {
	for name, nameOf := range map[string]func(c *adsc.Client) string{
		"asks":   func(c *adsc.Client) string { c.Synced(typeA); return "a" },
		"panics": func(*adsc.Client) string { panic("a body of the server's making") },
	} {
		t.Run(name, func(t *testing.T) {
			address := serve(t, func(_ int, s stream) error {
				if err := s.Send(response(t, typeA, "v", "n", "a")); err != nil {
					return err
				}
				<-s.Context().Done()
				return nil
			})
			called := make(chan struct{}, 1)
			var c *adsc.Client
			c, err := adsc.New(quiet(address, adsc.Subscription{
				TypeURL: typeA, Names: []string{"a"}, Handler: accept,
				NameOf: func(*anypb.Any) string { called <- struct{}{}; return nameOf(c) },
			}))
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan any, 1)
			go func() {
				defer func() { ended <- recover() }()
				_ = c.Run(ctx)
			}()
			receive(t, called)
			cancel()
			receive(t, ended)
		})
	}
}

func TestAbsent_ReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var absent [][]string
		cfg := quiet("", adsc.Subscription{
			TypeURL: typeA, Names: []string{"a"}, Handler: accept,
			Absent: func(_ context.Context, n []string) { absent = append(absent, n) },
		})
		cfg.Mode, cfg.Backoff = adsc.Delta, retries(5)
		cfg = bubbled(t, cfg, nil, func(n int, s deltaStream) error {
			_, _ = s.Recv()
			if err := s.Send(deltaResponse(t, "n", "v", "-a")); err != nil {
				return err
			}
			if n < 4 {
				pause(s, time.Minute)
				return errRestart
			}
			pause(s, time.Hour)
			return nil
		}, allowPings)
		run(t, cfg)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		assert.Equal(t, [][]string{{"a"}}, absent)
	})
}

// TestAbsentWait_RestartsWithName: one that was dropped and is asked for again has all the time that there is.
func TestAbsentWait_RestartsWithName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var absent []time.Duration
		var subscribed time.Time
		sub := adsc.Subscription{
			TypeURL: typeA, Names: []string{"a", "b"}, Handler: accept,
			Absent: func(_ context.Context, n []string) {
				if slices.Contains(n, "a") {
					absent = append(absent, time.Since(subscribed))
				}
			},
		}
		cfg := quiet("", sub)
		cfg.Mode = adsc.Delta
		cfg = bubbled(t, cfg, nil, func(n int, s deltaStream) error {
			for {
				if _, err := s.Recv(); err != nil {
					return err
				}
			}
		}, allowPings)
		c, err := adsc.New(cfg)
		require.NoError(t, err)
		start(t, c)
		synctest.Wait()
		time.Sleep(14 * time.Second)
		sub.Names = []string{"b"}
		require.NoError(t, c.Subscribe(sub))
		synctest.Wait()
		sub.Names = []string{"a", "b"}
		subscribed = time.Now()
		require.NoError(t, c.Subscribe(sub))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.NotEmpty(t, absent)
		assert.GreaterOrEqual(t, absent[0], 15*time.Second)
	})
}

// TestAnswer_QueuedForHandlerCounts: a server that answered in time is not silent while a handler works.
func TestAnswer_QueuedForHandlerCounts(t *testing.T) {
	wrong := 0
	for range 10 {
		synctest.Test(t, func(t *testing.T) {
			reported := false
			slow := func(context.Context, *adsc.Response) error { time.Sleep(16 * time.Second); return nil }
			cfg := quiet("", adsc.Subscription{TypeURL: typeA, Handler: slow},
				adsc.Subscription{TypeURL: typeB, Names: []string{"b"}, Handler: accept, Absent: func(context.Context, []string) { reported = true }})
			cfg.Mode = adsc.Delta
			cfg = bubbled(t, cfg, nil, func(_ int, s deltaStream) error {
				_ = s.Send(deltaResponse(t, "n", "v", "a@1"))
				pause(s, time.Second)
				_, _ = s.Recv()
				_, _ = s.Recv()
				r := deltaResponse(t, "n", "v", "b@1")
				r.TypeUrl = typeB
				_ = s.Send(r)
				pause(s, time.Hour)
				return nil
			}, allowPings)
			run(t, cfg)
			time.Sleep(time.Minute)
			synctest.Wait()
			if reported {
				wrong++
			}
		})
	}
	assert.Zero(t, wrong, "of 10: b was answered after 1 s, and reported absent after 15 s")
}
