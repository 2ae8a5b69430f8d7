package client_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tributary/internal/intake"
	"tributary/internal/secret"
	"tributary/sources/nacos/client"
	"tributary/sources/nacos/nacostest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAddress(t *testing.T) {
	a, err := client.ParseAddress("nacos://user:p%40ss@n1?backup=n2:8850,n3&namespace=test&group=shop&username=other&timeout=3000&" +
		"contextPath=/n")
	require.NoError(t, err)
	require.Equal(t, client.Address{
		Servers: []string{"n1:8848", "n2:8850", "n3:8848"}, User: "user", Password: secret.New("p@ss"), Namespace: "test", Group: "shop",
		ContextPath: "n", GRPCOffset: 1000,
	}, a)
	a, err = client.ParseAddress("nacos://[::1]:8848?namespace=public&username=nacos&password=secret")
	require.NoError(t, err)
	require.Equal(t, "public", a.NamespaceName())
	require.Empty(t, a.Namespace)
	require.Equal(t, []string{"nacos", "secret"}, []string{a.User, a.Password.Reveal()})
	for _, bad := range []string{
		"nacos://", "http://a", "nacos://a:0", "nacos://a:b", "nacos://a?grpcOffset=x", "nacos://a:65000",
		"nacos://a?backup=:1",
	} {
		_, err := client.ParseAddress(bad)
		require.ErrorContains(t, err, "address: ", bad)
	}
}

// listener records the last state of each service.
type listener struct {
	mu        sync.Mutex
	conn      []error
	names     map[string][]string
	instances map[string][]client.Instance
	warnings  map[string][]string
	errs      map[string]error
	healed    int
	onNames   func([]string)
	pool      *intake.Pool
}

func newListener() *listener {
	return &listener{
		names: map[string][]string{}, instances: map[string][]client.Instance{}, warnings: map[string][]string{},
		errs: map[string]error{}, pool: intake.NewPool(intake.Limits{}),
	}
}

func (l *listener) do(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

func (l *listener) Connection(err error) { l.do(func() { l.conn = append(l.conn, err) }) }

func (l *listener) Services(group string, names []string, err error) {
	l.do(func() {
		if l.names[group], l.errs[group] = names, err; l.onNames != nil && err == nil {
			l.onNames(names)
		}
	})
}

func (l *listener) Instances(group, service string, instances []client.Instance, warnings []string, err error) {
	l.do(func() {
		l.errs[group+"@@"+service] = err
		if err == nil {
			l.instances[group+"@@"+service], l.warnings[group+"@@"+service] = instances, warnings
		}
	})
}
func (l *listener) Healed(string, string) { l.do(func() { l.healed++ }) }

// await waits until ok holds.
func (l *listener) await(t *testing.T, condition string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		l.mu.Lock()
		met := ok()
		l.mu.Unlock()
		if met {
			return
		}
		if time.Now().After(end) {
			require.Fail(t, "not in time", "%s: %+v", condition, l)
		}
	}
}

// awaitInstances waits until a service has a number of instances.
func (l *listener) awaitInstances(t *testing.T, service string, count int) {
	t.Helper()
	l.await(t, fmt.Sprint(service, " has instances: ", count), func() bool { return len(l.instances[service]) == count })
}

func (l *listener) awaitConnection(t *testing.T) {
	t.Helper()
	l.await(t, "it is connected", func() bool { return len(l.conn) > 0 && l.conn[0] == nil })
}

// put registers an instance of a service in the default group.
func put(server *nacostest.Server, service, id, ip string) {
	server.Put("DEFAULT_GROUP", service, id, nacostest.Instance(ip, 80, nil))
}

// follow watches the Nacos at an address until the test ends.
func follow(t *testing.T, address string, w client.Watched) (*client.Client, *listener) {
	t.Helper()
	l := newListener()
	return l.follow(t, address, w), l
}

func (l *listener) follow(t *testing.T, address string, w client.Watched, change ...func(*client.Client)) *client.Client {
	t.Helper()
	a, err := client.ParseAddress(address)
	require.NoError(t, err)
	if w.Interval == 0 {
		w.Interval = 5 * time.Millisecond
	}
	if w.Resync == 0 {
		w.Resync = time.Hour
	}
	w.Groups = append(w.Groups, client.DefaultGroup)
	if w.Selects == nil {
		w.Selects = func(string, string) bool { return true }
	}
	c := client.New(a, nil)
	for _, f := range change {
		f(c)
	}
	ctx, cancel := context.WithCancel(l.pool.Source(context.Background()))
	result := make(chan error, 1)
	go func() { result <- c.Watch(ctx, w, l) }()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-result, context.Canceled)
	})
	return c
}

const orders = "DEFAULT_GROUP@@orders"

func TestChanges_ArePushed(t *testing.T) {
	server := nacostest.Start(t)
	server.Put("DEFAULT_GROUP", "orders", "1", nacostest.Instance("10.0.0.1", 80, map[string]string{"a": "b"}))
	_, listener := follow(t, server.Address(), client.Watched{})
	listener.awaitInstances(t, orders, 1)
	require.Equal(t, client.Instance{
		IP: "10.0.0.1", Port: 80, Weight: 1, Healthy: true, Enabled: true, Cluster: "DEFAULT",
		Metadata: map[string]string{"a": "b"},
	}, listener.instances[orders][0])
	put(server, "orders", "2", "10.0.0.2")
	listener.awaitInstances(t, orders, 2)
	put(server, "carts", "1", "10.0.0.3")
	listener.awaitInstances(t, "DEFAULT_GROUP@@carts", 1)
	server.Delete("DEFAULT_GROUP", "orders", "1")
	server.Delete("DEFAULT_GROUP", "orders", "2")
	listener.await(t, "there is none", func() bool {
		return len(listener.instances[orders]) == 0
	})
	require.Equal(t, 2, server.Requests("SubscribeServiceRequest"), "one for each service: pushed services are not read")
}

// TestUnlistedService_KeepsInstances has a service vanish from the list that has an instance still.
func TestUnlistedService_KeepsInstances(t *testing.T) {
	server := nacostest.Start(t)
	put(server, "orders", "1", "10.0.0.1")
	put(server, "carts", "1", "10.0.0.2")
	_, l := follow(t, server.Address(), client.Watched{})
	l.await(t, "both are read", func() bool { return len(l.instances) == 2 })
	server.Hide("DEFAULT_GROUP", "orders")
	before := server.Requests("SubscribeServiceRequest")
	server.Unlist("DEFAULT_GROUP", "carts")
	l.awaitInstances(t, "DEFAULT_GROUP@@carts", 0)
	require.Greater(t, server.Requests("SubscribeServiceRequest"), before)
	l.await(t, "and has gone", func() bool { return slices.Equal(l.names["DEFAULT_GROUP"], []string{"orders"}) })
	require.Len(t, l.instances[orders], 1, "it says itself that it has one")
	server.Delete("DEFAULT_GROUP", "orders", "1")
	l.await(t, "its last instance goes", func() bool { return len(l.names["DEFAULT_GROUP"]) == 0 })
}

// TestMalformedInstances_DoNotBlockOthers has instances and a service that cannot be read.
func TestMalformedInstances_DoNotBlockOthers(t *testing.T) {
	server := nacostest.Start(t)
	put(server, "orders", "1", "10.0.0.1")
	for i, bad := range []any{
		nil, 5, "text",
		[]int{},
		map[string]any{"ip": 5},
		map[string]any{"port": 70000, "ip": "10.0.0.9"},
		map[string]any{"ip": "10.0.0.9", "metadata": "x"},
	} {
		server.Put("DEFAULT_GROUP", "orders", "bad"+strconv.Itoa(i), bad)
	}
	server.Put("DEFAULT_GROUP", "orders", "2", map[string]any{
		"ip": "10.0.0.2", "port": 81,
		"metadata": map[string]any{"n": 5, "o": map[string]any{}}, "new": []int{1},
	})
	put(server, "refused", "1", "10.0.0.3")
	server.Refuse("DEFAULT_GROUP", "refused", "Param check failed")
	_, l := follow(t, server.Address(), client.Watched{Resync: 20 * time.Millisecond})
	l.await(t, "it is read", func() bool { return len(l.instances[orders]) == 2 && l.errs["DEFAULT_GROUP@@refused"] != nil })
	require.Len(t, l.warnings[orders], 7)
	require.Equal(t, map[string]string{"n": "5", "o": "{}"}, l.instances[orders][1].Metadata)
	require.ErrorContains(t, l.errs["DEFAULT_GROUP@@refused"], "service refused of group DEFAULT_GROUP: Param check failed")
	server.Refuse("DEFAULT_GROUP", "refused", "")
	l.awaitInstances(t, "DEFAULT_GROUP@@refused", 1)
}

func TestResync_RepairsLostPush(t *testing.T) {
	server := nacostest.Start(t)
	put(server, "orders", "1", "10.0.0.1")
	_, listener := follow(t, server.Address(), client.Watched{Resync: 20 * time.Millisecond})
	listener.awaitInstances(t, orders, 1)
	server.Silence(true)
	put(server, "orders", "2", "10.0.0.2")
	listener.await(t, "it is found", func() bool { return len(listener.instances[orders]) == 2 && listener.healed > 0 })
}

// TestServerClock_StepsBack has a server with a clock that is set back by an hour: its later pushes and answers still
// count.
func TestServerClock_StepsBack(t *testing.T) {
	server := nacostest.Start(t)
	server.SetClock(3_600_000)
	put(server, "orders", "1", "10.0.0.1")
	_, l := follow(t, server.Address(), client.Watched{})
	l.awaitInstances(t, orders, 1)
	server.SetClock(0)
	put(server, "orders", "2", "10.0.0.2")
	l.awaitInstances(t, orders, 2)
	server.Delete("DEFAULT_GROUP", "orders", "1")
	l.await(t, "the next push counts", func() bool { return len(l.instances[orders]) == 1 && l.instances[orders][0].IP == "10.0.0.2" })
}

// TestLargeService_DoesNotBlockOthers has a service that is larger than an answer may be, and others.
func TestLargeService_DoesNotBlockOthers(t *testing.T) {
	s := nacostest.Start(t)
	put(s, "orders", "1", "10.0.0.1")
	const large = "DEFAULT_GROUP@@large"
	s.Put("DEFAULT_GROUP", "large", "1", nacostest.Instance("10.0.1.1", 80, map[string]string{"a": strings.Repeat("x", 1<<20)}))
	l := newListener()
	l.follow(t, s.Address(), client.Watched{Resync: time.Second}, func(c *client.Client) { c.Limit(1 << 20) })
	l.await(t, "others are read", func() bool { return l.errs[large] != nil && len(l.instances[orders]) == 1 })
	require.ErrorContains(t, l.errs[large], "service large of group DEFAULT_GROUP: SubscribeServiceRequest: the answer is too large")
	put(s, "large", "more", "10.0.1.2") // this is not pushed
	put(s, "orders", "2", "10.0.0.2")
	l.awaitInstances(t, orders, 2)
	s.Delete("DEFAULT_GROUP", "large", "1")
	l.awaitInstances(t, large, 1)
	require.Equal(t, []error{nil}, l.conn, "all of it by one connection")
}

// TestInstancesOverLimit_Refused has services that fit the limit alone, and exceed it together.
func TestInstancesOverLimit_Refused(t *testing.T) {
	s := nacostest.Start(t)
	put(s, "orders", "1", "10.0.0.1")
	const large = "DEFAULT_GROUP@@zzz" // it is read after the other one
	s.Put("DEFAULT_GROUP", "zzz", "1", nacostest.Instance("10.0.1.1", 80, map[string]string{"a": strings.Repeat("x", 10_000)}))
	l := newListener()
	l.pool = intake.NewPool(intake.Limits{Objects: 5_000})
	l.follow(t, s.Address(), client.Watched{Resync: time.Second})
	l.await(t, "the others are read", func() bool { return l.errs[large] != nil && len(l.instances[orders]) == 1 })
	require.ErrorContains(t, l.errs[large], "service zzz of group DEFAULT_GROUP: its ")
	require.ErrorContains(t, l.errs[large], "takes more than 5000 bytes (limits.objectBytes)")
	put(s, "orders", "2", "10.0.0.2")
	l.awaitInstances(t, orders, 2)
	put(s, "zzz", "1", "10.0.1.1")
	l.await(t, "it is read when it can be", func() bool { return len(l.instances[large]) == 1 && l.errs[large] == nil })
	require.Equal(t, []error{nil}, l.conn, "all of it by one connection")
}

func TestBackupServer_UsedAfterFailure(t *testing.T) {
	down, up := nacostest.Start(t), nacostest.Start(t)
	down.Stop()
	put(up, "orders", "1", "10.0.0.1")
	backup := strings.TrimSuffix(strings.TrimPrefix(up.Address(), "nacos://"), "?grpcOffset=0")
	_, listener := follow(t, down.Address()+"&backup="+backup, client.Watched{})
	listener.awaitInstances(t, orders, 1)
	require.ErrorContains(t, listener.conn[0], " (gRPC, 0 above the port of "+
		strings.TrimSuffix(strings.TrimPrefix(down.Address(), "nacos://"), "?grpcOffset=0")+"; grpcOffset in the address if it is another one): ")
	require.NoError(t, listener.conn[len(listener.conn)-1])
}

func TestConfig(t *testing.T) {
	s := nacostest.Start(t)
	s.Config("app", "r1", "{}")
	c, l := follow(t, s.Address(), client.Watched{})
	l.awaitConnection(t)
	require.Eventually(t, func() bool {
		text, err := c.Config(t.Context(), "app", "r1")
		return err == nil && text == "{}"
	}, 20*time.Second, time.Millisecond)
	_, err := c.Config(t.Context(), "app", "r2")
	require.ErrorIs(t, err, client.ErrAbsent)
}

// TestLogin has a Nacos that wants a token, which is had over HTTP and then taken back.
func TestLogin(t *testing.T) {
	server := nacostest.Start(t)
	put(server, "orders", "1", "10.0.0.1")
	server.Demand("first")
	var mu sync.Mutex
	token := "first"
	web := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case request.URL.Path != "/nacos/v1/auth/login":
			http.Error(response, "no such page", http.StatusNotFound)
		case request.PostFormValue("username") != "me" || request.PostFormValue("password") != "p@ss" || token == "":
			http.Error(response, "unknown user!", http.StatusForbidden)
		default:
			assert.NoError(t, json.NewEncoder(response).Encode(map[string]any{"accessToken": token, "tokenTtl": 18000}))
		}
	}))
	t.Cleanup(web.Close)
	_, l := follow(t, server.Beside(web, "me:p%40ss@"), client.Watched{})
	l.awaitInstances(t, orders, 1)

	mu.Lock()
	token = "second"
	mu.Unlock()
	server.Demand("second")
	put(server, "carts", "1", "10.0.0.1")
	l.awaitInstances(t, "DEFAULT_GROUP@@carts", 1)

	_, stranger := follow(t, server.Beside(web, "you:x@"), client.Watched{})
	stranger.await(t, "it is denied", func() bool { return errors.Is(stranger.errs["DEFAULT_GROUP"], client.ErrDenied) })
	_, anonymous := follow(t, server.Address(), client.Watched{})
	anonymous.await(t, "it is denied", func() bool { return errors.Is(anonymous.errs["DEFAULT_GROUP"], client.ErrDenied) })
}

// TestLoginWithoutToken_ReportedByDeniedRequest has servers that return no token at a login: a request that needs one
// reports the reason.
func TestLoginWithoutToken_ReportedByDeniedRequest(t *testing.T) {
	noStatus := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		c, _, err := http.NewResponseController(w).Hijack()
		if assert.NoError(t, err) {
			_, _ = io.WriteString(c, "HTTP/1.1 0 \r\nContent-Length: 0\r\n\r\n")
			_ = c.Close()
		}
	}
	failing := func(ready bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/nacos/v3/admin/core/state/readiness" && ready {
				_, _ = io.WriteString(w, `{"code":0,"message":"success","data":"ok"}`)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = fmt.Fprintf(w, `{"timestamp":"2026-11-22T11:31:52.060+00:00","status":500,"error":"Internal Server Error","path":%q}`, r.URL.Path)
		}
	}
	for name, c := range map[string]struct {
		login  http.HandlerFunc
		why    string // the error, if the server requires a token
		denied bool
	}{
		"2.3.2 without access control": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/nacos/v1/auth/login" {
				http.NotFound(w, r)
				return
			}
			_, _ = io.WriteString(w, `{"code":200,"message":null,"data":"Bearer AUTH_DISABLED"}`)
		}, "log in as you: 200 OK without a token", true},
		"one that has no way to log in": {http.NotFound, "log in as you: 404 Not Found without a token", true},
		"2.3.2 of a wrong password":     {noStatus, "log in as you", true},
		"one that refuses": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "unknown user!", http.StatusForbidden)
		}, "log in as you: access denied: 403 Forbidden", true},
		"3.1.0 of a wrong password, with an error 500": {
			failing(true),
			"log in as you: access denied: 500 Internal Server Error from a server that is ready", true,
		},
		"3.1.0 that has such an error": {failing(false), "log in as you: 500 Internal Server Error", false},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(c.login)
			t.Cleanup(server.Close)
			s := nacostest.Start(t)
			put(s, "orders", "1", "10.0.0.1")
			_, listener := follow(t, s.Beside(server, "you:x@"), client.Watched{})
			listener.awaitInstances(t, orders, 1)

			s = nacostest.Start(t)
			s.Demand("something")
			_, listener = follow(t, s.Beside(server, "you:x@"), client.Watched{})
			var why error
			listener.await(t, "it says why not", func() bool {
				why = listener.errs["DEFAULT_GROUP"]
				for _, failure := range listener.conn {
					why = cmp.Or(failure, why)
				}
				return why != nil
			})
			require.ErrorContains(t, why, c.why)
			require.Equal(t, c.denied, errors.Is(why, client.ErrDenied), "%v", why)
		})
	}
}

// TestLogin_Retried has a user that is created after the first refusals, and counts the logins before.
func TestLogin_Retried(t *testing.T) {
	server := nacostest.Start(t)
	put(server, "orders", "1", "10.0.0.1")
	server.Demand("token")
	var reported atomic.Bool
	var logins atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, r *http.Request) {
		if logins.Add(1); !reported.Load() {
			http.Error(response, "unknown user!", http.StatusForbidden)
			return
		}
		_, _ = io.WriteString(response, `{"accessToken":"token","tokenTtl":18000}`)
	}))
	t.Cleanup(web.Close)
	_, patient := follow(t, server.Beside(web, "me:x@"), client.Watched{})
	patient.await(t, "it is refused", func() bool { return errors.Is(patient.errs["DEFAULT_GROUP"], client.ErrDenied) })
	before := server.Requests("ServiceListRequest")
	patient.await(t, "it is refused again", func() bool { return server.Requests("ServiceListRequest") > before+10 })
	require.EqualValues(t, 2, logins.Load(), "once in each way, and not with each request")

	l := newListener()
	l.follow(t, server.Beside(web, "me:x@"), client.Watched{}, func(c *client.Client) { c.LoginEvery(time.Millisecond) })
	l.await(t, "it is refused", func() bool { return errors.Is(l.errs["DEFAULT_GROUP"], client.ErrDenied) })
	reported.Store(true)
	l.awaitInstances(t, orders, 1)
}

// TestConfigs lists texts of configuration, as Nacos 2.3.2 and 3.1.0 were seen to answer.
func TestConfigs(t *testing.T) {
	server := nacostest.Start(t)
	for version, c := range map[string]struct{ path, group, page string }{
		"2.3.2": {
			"/nacos/v1/cs/configs", "group",
			`{"totalCount":2,"pageNumber":%[1]s,"pagesAvailable":2,"pageItems":[{"id":"1098562598263066624","dataId":"demo.GreetService%[1]s",` +
				`"group":"mapping","content":"inst-app","md5":null,"encryptedDataKey":"","tenant":"","appName":"","type":null}]}`,
		},
		"3.1.0": {
			"/nacos/v3/admin/cs/config/list", "groupName",
			`{"code":0,"message":"success","data":{"totalCount":2,"pageNumber":%[1]s,"pagesAvailable":2,` +
				`"pageItems":[{"id":"1098563185444655104","namespaceId":"public","groupName":"mapping","dataId":"demo.GreetService%[1]s",` +
				`"md5":"f92ea1839dc16d7396db358365da7066","type":"text","appName":"","createTime":0,"modifyTime":0}]}}`,
		},
	} {
		t.Run(version, func(t *testing.T) {
			status := http.StatusOK
			web := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, r *http.Request) {
				if q := r.URL.Query(); r.URL.Path != c.path || q.Get(c.group) != "mapping" || q.Get("search") != "blur" {
					http.NotFound(response, r)
					return
				}
				response.WriteHeader(status)
				_, _ = fmt.Fprintf(response, c.page, r.URL.Query().Get("pageNo"))
			}))
			t.Cleanup(web.Close)
			nacos, listener := follow(t, server.Beside(web, ""), client.Watched{})
			listener.awaitConnection(t)
			var names []string
			var err error
			listener.await(t, "it can be asked", func() bool {
				names, err = nacos.Configs(t.Context(), "mapping")
				return err == nil
			})
			require.Equal(t, []string{"demo.GreetService1", "demo.GreetService2"}, names)
			status = http.StatusForbidden
			_, err = nacos.Configs(t.Context(), "mapping")
			require.ErrorIs(t, err, client.ErrDenied)
		})
	}
}

// TestSkippedServices_Reported has services that are not selected be named at each look.
func TestSkippedServices_Reported(t *testing.T) {
	server := nacostest.Start(t)
	put(server, "orders", "1", "10.0.0.1")
	server.Put("DEFAULT_GROUP", "providers:com.acme.Demo::", "1", nacostest.Instance("10.0.0.2", 20880, nil))
	passed := make(chan []string, 1)
	_, listener := follow(t, server.Address(), client.Watched{
		Selects: func(_, name string) bool { return name == "orders" },
		Skipped: func(_ string, names []string) {
			select {
			case passed <- names:
			default:
			}
		},
	})
	listener.awaitInstances(t, orders, 1)
	require.Equal(t, []string{"providers:com.acme.Demo::"}, <-passed)
}

// TestConfigurationOverLimit_Refused has a server count, list or send more than the limit: no part is taken as the
// complete list.
func TestConfigurationOverLimit_Refused(t *testing.T) {
	server := nacostest.Start(t)
	page := ""
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, page) }))
	t.Cleanup(web.Close)
	nacos, l := follow(t, server.Beside(web, ""), client.Watched{})
	l.awaitConnection(t)
	l.await(t, "it can be asked", func() bool {
		_, err := nacos.Configs(t.Context(), "mapping")
		return err == nil || !strings.Contains(err.Error(), "connect")
	})
	for name, c := range map[string]struct{ page, want string }{
		"counted": {
			`{"totalCount":20001,"pageItems":[{"dataId":"a"}]}`,
			"there are 20001 or more, and of more than 20000 (maxConfigs) none are read",
		},
		"listed": {
			`{"totalCount":1,"pageItems":[` + strings.Repeat(`{"dataId":"a"},`, 20_000) + `{"dataId":"b"}]}`,
			"there are 20001 or more, and of more than 20000 (maxConfigs) none are read",
		},
		"sent": {`{"totalCount":1,"pageItems":[{"dataId":"` + strings.Repeat("a", 8<<20) + `"}]}`, "the answer has more than 8 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			page = c.page
			_, err := nacos.Configs(t.Context(), "mapping")
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "list the configuration of group mapping")
		})
	}
}
