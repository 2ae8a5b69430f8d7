package relay

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"tributary/config"
	"tributary/server/identity"
	"tributary/sources"
)

// restricted writes a configuration with rules.
func restricted(t *testing.T, dir, rules string) {
	write(t, dir+"/tributary.yaml", "listen: {xds: '127.0.0.1:0', admin: '127.0.0.1:0'}\nstateDir: 'off'\nidentity: {tokens: "+
		"tokens}\nconfigSources: [{address: 'fs://./rules'}]\n"+rules)
}

// subscriber is a stream of one type.
type subscriber struct {
	stream grpc.BidiStreamingClient[discovery.DiscoveryRequest, discovery.DiscoveryResponse]
}

func subscribe(t *testing.T, r *rig, token, node string) *subscriber {
	return subscribeTo(t, r.XDS().String(), insecure.NewCredentials(), token, &corev3.Node{Id: node})
}

// gets waits for a response with n resources.
func (s *subscriber) gets(t *testing.T, n int) {
	t.Helper()
	for {
		resp, err := s.stream.Recv()
		require.NoError(t, err)
		require.NoError(t, s.stream.Send(&discovery.DiscoveryRequest{
			TypeUrl: resp.GetTypeUrl(), ResponseNonce: resp.GetNonce(),
			VersionInfo: resp.GetVersionInfo(),
		}))
		if len(resp.GetResources()) == n {
			return
		}
	}
}

// ends waits for the end of the stream.
func (s *subscriber) ends(t *testing.T) (code codes.Code, message string) {
	t.Helper()
	for {
		if _, err := s.stream.Recv(); err != nil {
			return status.Code(err), status.Convert(err).Message()
		}
	}
}

// endsWith waits for the end of the stream, with this reason.
func (s *subscriber) endsWith(t *testing.T, code codes.Code, part string) {
	t.Helper()
	ended, message := s.ends(t)
	require.Equal(t, code, ended)
	require.Contains(t, message, part)
}

// newToken returns a token, and the line of its hash.
func newToken(t *testing.T, name string) (token, line string) {
	t.Helper()
	token, line, err := identity.NewToken(name)
	require.NoError(t, err)
	return token, line
}

func TestRightsChange_EndsTheStream(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fill(t, dir, "rules/all.yaml: prod/p*2 test/t*3")
	var tokens, lines []string
	for _, name := range []string{"prod", "all", "prod"} {
		token, line := newToken(t, name)
		tokens, lines = append(tokens, token), append(lines, line)
	}
	write(t, dir+"/tokens", strings.Join(lines, ""))
	const prod, everything = "- {who: {token: [prod]}, allow: {namespaces: [prod]}}\n", "- {who: {token: [all]}}\n"
	restricted(t, dir, "access:\n"+prod+everything+"- {who: {cidr: [127.0.0.0/8], node: [reader-*]}, allow: {namespaces: [test], services: "+
		"[reflection]}}\n")
	r := startReady(t, dir)

	first, two, three, reader := subscribe(t, r, tokens[0], "a"), subscribe(t, r, tokens[1], "b"), subscribe(t, r, tokens[2], "c"),
		subscribe(t, r, "", "reader-1")
	first.gets(t, 2)
	two.gets(t, 5)
	three.gets(t, 2)
	reader.gets(t, 3)
	for _, c := range []struct {
		token, node string
		code        codes.Code
		message     string
	}{
		{"", "writer", codes.PermissionDenied, "no access rule matches a client without certificate or token"},
		{tokens[0] + "x", "a", codes.Unauthenticated, "the token is unknown or revoked"},
	} {
		subscribe(t, r, c.token, c.node).endsWith(t, c.code, c.message)
		require.Contains(t, r.log.String(), `msg="client refused" peer=127.0.0.1 identity="a client without certificate or token" err="`+
			c.message+`"`)
	}

	// A token is revoked: the streams that came with it end, and no others.
	write(t, dir+"/tokens", lines[0]+lines[1])
	three.endsWith(t, codes.Unauthenticated, "the token is unknown or revoked")
	require.Equal(t, 1, strings.Count(r.log.String(), `msg="client refused" peer=127.0.0.1 identity=token:prod`))

	// A reload ends the streams of clients whose rights it changes, and no other streams. These clients return with their
	// new rights.
	restricted(t, dir, "access:\n"+strings.Replace(prod, "[prod]}}", "[prod, more]}}", 1)+everything+
		"- {who: {cidr: [127.0.0.0/8]}, allow: {namespaces: [test, prod], services: [reflection]}}\n")
	r.reloadFile(t)
	require.Empty(t, r.reloader.Status().Restart)
	for _, changed := range []*subscriber{first, reader} {
		changed.endsWith(t, codes.Unavailable, "the rights of this client have changed: connect again")
	}
	first, reader = subscribe(t, r, tokens[0], "a"), subscribe(t, r, "", "reader-1")
	first.gets(t, 2)
	reader.gets(t, 5)
	restricted(t, dir, "access:\n"+prod+strings.Replace(everything, "}}", "}, allow: {namespaces: [test]}}", 1))
	r.reloadFile(t)
	two.endsWith(t, codes.Unavailable, "the rights of this client have changed: connect again") // it may come again
	reader.endsWith(t, codes.PermissionDenied, "")
	returned := subscribe(t, r, tokens[1], "b")
	returned.gets(t, 3)
	first.endsWith(t, codes.Unavailable, "")
	first = subscribe(t, r, tokens[0], "a")
	first.gets(t, 2)
	fill(t, dir, "rules/more.yaml: prod/q*1")
	first.gets(t, 3)

	// Each list of clients shows the identity that a client proved.
	for path, want := range map[string]string{
		"/debug/clients": `"identity":"token:all"`, "/debug/status": `"identity":"token:all"`,
		"/": "Authenticated as <q>token:all</q>",
	} {
		require.Contains(t, strings.ReplaceAll(r.page(t, path), `": "`, `":"`), want, path)
	}
	require.Regexp(t, `msg="client connected".* identity=token:all`, r.log.String())

	// A configuration with a file that is missing is refused.
	restricted(t, dir, "access: []\n")
	text := strings.Replace(mustRead(t, dir+"/tributary.yaml"), "tokens: tokens", "tokens: nowhere", 1)
	write(t, dir+"/tributary.yaml", text)
	_, err := r.reloader.Reload(t.Context(), "the test")
	require.ErrorContains(t, err, "nowhere: no such file or directory")
	restricted(t, dir, "access: []\n")
	r.reloadFile(t)
	first.endsWith(t, codes.PermissionDenied, "")

	// No page and no log shows a token or its hash.
	for _, path := range []string{
		"/debug/status", "/debug/syncz", "/debug/sources", "/debug/configz", "/metrics",
		"/debug/pprof/goroutine?debug=2", "/debug/pprof/cmdline", "/",
	} {
		page := r.page(t, path)
		for i := range tokens {
			require.NotContains(t, page, tokens[i][10:], path)
			require.NotContains(t, page, strings.Fields(lines[i])[1][7:], path)
		}
	}
	for i := range tokens {
		require.NotContains(t, r.log.String(), tokens[i][10:])
		require.NotContains(t, r.log.String(), strings.Fields(lines[i])[1][7:])
	}
	require.Contains(t, r.page(t, "/metrics"), `tributary_access_refusals_total{reason="changed"} 4`)
}

func mustRead(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

// Secrets of every sort that the configuration has, of sources that all fail, are on no page and in no line of the log.
func TestSecrets_AppearOnNoPage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const planted = "pl4nted"
	token, line := newToken(t, "ci")
	write(t, dir+"/tokens", line)
	write(t, dir+"/consul", planted+"consul")
	write(t, dir+"/bad-tokens", "ci "+planted+"\n")
	fill(t, dir, "rules/all.yaml: prod/p*1")
	nowhere := down(t)
	text := "listen: {xds: '127.0.0.1:0', admin: '127.0.0.1:0'}\nstateDir: state\nidentity: {tokens: tokens}\nconfigSources:\n" +
		"- {address: 'fs://" + dir + "/rules'}\n" +
		plantedSources(t, planted, nowhere) +
		"- {name: z2, address: 'zookeeper://" + nowhere + "/other?username=me&password=" + planted + "zk'}\n" +
		"- {name: ns, address: 'nacos://" + nowhere + "?kind=services&username=me&password=" + planted + "nacos'}\n"
	write(t, dir+"/tributary.yaml", text)
	rig := start(t, dir)
	await(t, func() bool {
		return !slices.ContainsFunc(rig.supervisor.Status(), func(s sources.Status) bool {
			return s.Name != "rules" && s.Message == "" && s.LastError == ""
		})
	})
	code, message := subscribe(t, rig, token+planted, "a").ends(t)
	require.Equal(t, codes.Unauthenticated, code)
	// A file with a token in place of its hash, and a configuration that is refused for it.
	write(t, dir+"/tributary.yaml", strings.Replace(text, "tokens: tokens", "tokens: bad-tokens", 1))
	_, err := rig.reloader.Reload(t.Context(), "the test")
	require.Error(t, err)
	seen := message + err.Error()
	for _, path := range []string{
		"/debug/status", "/debug/syncz", "/debug/clients", "/debug/sources", "/debug/configz", "/debug/quarantine",
		"/debug/guard", "/debug/explain?kind=ServiceEntry&namespace=prod&name=p00",
		"/metrics", "/debug/pprof/goroutine?debug=2", "/debug/pprof/cmdline", "/", "/debug/history?details=true", "/debug/history/at",
		"/debug/expected?node=%7B%7D",
	} {
		seen += rig.page(t, path)
	}
	seen += rig.log.String()
	for _, file := range slices.Concat(glob(t, dir+"/state/*"), glob(t, dir+"/state/*/*")) {
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			seen += mustRead(t, file)
		}
	}
	require.NotContains(t, seen, planted)
	require.NotContains(t, seen, token[10:])
	require.NotContains(t, seen, strings.Fields(line)[1][7:])
}

// plantedSources returns each source that reads a server, with a secret in each form that its configuration may have.
func plantedSources(t *testing.T, planted, server string) (text string) {
	t.Helper()
	for index, scheme := range config.Schemes() {
		if !strings.Contains(scheme.Address, "%s") {
			continue
		}
		before, forms := text, []string{"tokenFile: consul", "tokenFile: consul, tlsSettings: {mode: SIMPLE}", "precedence: 0"}
		for form, keys := range forms {
			credentials := ""
			if form == 2 {
				credentials = "me:" + planted + scheme.Names[0] + "@"
			}
			line := fmt.Sprintf("- {name: p%d-%d, address: '%s', %s}\n", index, form,
				strings.Replace(scheme.Address, "%s", credentials+server, 1), keys)
			if _, err := config.Parse("t.yaml", []byte("configSources:\n"+line)); err == nil {
				text += line
			} else {
				require.NotContains(t, err.Error(), planted)
			}
		}
		require.NotEqual(t, before, text, scheme.Address)
	}
	return text
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	return files
}
