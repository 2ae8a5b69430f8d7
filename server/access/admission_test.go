package access

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"tributary/server/identity"
)

const adsMethod = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"

// openStream opens a stream from loopback with a token.
func openStream(t *testing.T, admission *Admission, method, token string) context.Context {
	t.Helper()
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}})
	if token != "" {
		ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", "Bearer "+token))
	}
	ctx, leave, err := admission.enter(ctx, method)
	require.NoError(t, err)
	context.AfterFunc(ctx, leave)
	return ctx
}

// TestAdmission_RightChanges: a stream ends when its client gets other rights than those that the stream uses, and only
// then.
func TestAdmission_RightChanges(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	token, line, err := identity.NewToken("ci")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte(line), 0o600))
	rules := func(permissions Permissions) Rules {
		return Rules{{Match: Match{Token: {"ci"}}, Rights: NewRights(permissions)}, {Match: Match{Node: {"reader"}}}}
	}
	before := Permissions{Namespaces: []string{"prod"}, Services: []string{CSDS, Debug}}
	const csds = "/envoy.service.status.v3.ClientStatusDiscoveryService/StreamClientStatus"
	for name, c := range map[string]struct {
		method, service string // a service used over xDS
		decided         bool
		after           Permissions
		want            codes.Code
	}{
		"csds stays":             {csds, "", false, before, codes.OK},
		"csds lost":              {csds, "", false, Permissions{Namespaces: []string{"prod"}}, codes.Unavailable},
		"csds with other rights": {csds, "", false, Permissions{Services: []string{CSDS}}, codes.Unavailable},
		"debug lost":             {adsMethod, Debug, false, Permissions{Services: []string{CSDS}}, codes.Unavailable},
		"undecided":              {adsMethod, "", false, Permissions{Services: []string{CSDS}}, codes.OK},
		"decided":                {adsMethod, "", true, Permissions{Services: []string{CSDS}}, codes.Unavailable},
		"decided and unchanged":  {adsMethod, "", true, before, codes.OK},
		"everything":             {adsMethod, "", true, Permissions{}, codes.Unavailable},
	} {
		proofs, err := identity.NewAuthenticator(identity.Settings{Tokens: file}, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		policy := Policy{Rules: rules(before), Authenticator: proofs}
		admission := NewAdmission(policy, slog.New(slog.DiscardHandler), nil)
		ctx := openStream(t, admission, c.method, token)
		if c.service != "" {
			require.NoError(t, RequireService(ctx, c.service), name)
		}
		if c.decided {
			_, err := RightsOf(ctx, &corev3.Node{Id: "a"})
			require.NoError(t, err, name)
		}
		admission.Recheck()
		require.NoError(t, context.Cause(ctx), name)
		policy.Rules = rules(c.after)
		admission.Set(policy)
		require.Equal(t, c.want, status.Code(context.Cause(ctx)), name)
	}
}

// TestAdmission_ProofChanges: a stream ends when its token is revoked, renamed or no longer accepted.
func TestAdmission_ProofChanges(t *testing.T) {
	token, line, err := identity.NewToken("ci")
	require.NoError(t, err)
	everyone := Rules{{}}
	for name, c := range map[string]struct {
		file    string // its new content
		removed bool   // the configuration has no tokens now
		want    codes.Code
	}{
		"unchanged":         {line, false, codes.OK},
		"revoked":           {"", false, codes.Unauthenticated},
		"renamed":           {"other" + strings.TrimPrefix(line, "ci"), false, codes.Unavailable},
		"invalid file":      {line + "x\n", false, codes.OK},
		"no tokens anymore": {line, true, codes.Unavailable},
	} {
		file := filepath.Join(t.TempDir(), "tokens")
		require.NoError(t, os.WriteFile(file, []byte(line), 0o600))
		proofs, err := identity.NewAuthenticator(identity.Settings{Tokens: file}, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		admission := NewAdmission(Policy{Rules: everyone, Authenticator: proofs}, slog.New(slog.DiscardHandler), nil)
		ctx := openStream(t, admission, adsMethod, token)
		rejected := openStream(t, admission, adsMethod, "")
		require.NoError(t, os.WriteFile(file, []byte(c.file), 0o600))
		if c.removed {
			admission.Set(Policy{Rules: everyone})
		} else if proofs.Refresh() {
			admission.Recheck()
		}
		require.Equal(t, c.want, status.Code(context.Cause(ctx)), name)
		require.NoError(t, context.Cause(rejected), "%s: a client without a token goes on", name)
	}
}

// TestAdmission_Methods: a method that permissions cannot name is not served, and only a single health check is free.
func TestAdmission_Methods(t *testing.T) {
	limited := Rules{{Rights: NewRights(Permissions{Services: []string{Reflection}})}}
	const ok, denied, unknown = codes.OK, codes.PermissionDenied, codes.Unimplemented
	for method, want := range map[string][3]codes.Code{ // with rules for no client, without rules, with limited
		"/grpc.health.v1.Health/Check":                                 {ok, ok, ok},
		"/grpc.health.v1.Health/Watch":                                 {denied, ok, ok},
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":    {denied, ok, ok},
		"/grpc.channelz.v1.Channelz/GetServers":                        {denied, ok, denied},
		"/envoy.service.status.v3.ClientStatusDiscoveryService/FetchX": {denied, ok, denied},
		adsMethod:               {denied, ok, ok},
		"/other.Service/Method": {denied, unknown, unknown},
		adsMethod[1:]:           {denied, unknown, unknown},
	} {
		for i, rules := range []Rules{{}, nil, limited} {
			g := NewAdmission(Policy{Rules: rules}, slog.New(slog.DiscardHandler), nil)
			_, leave, err := g.enter(t.Context(), method)
			require.Equal(t, want[i], status.Code(err), method)
			if err == nil {
				leave()
			}
			require.Empty(t, g.clients, method)
		}
	}
}

// TestAuthorizeAdmin_ExpiredProof: a client of the admin server is refused after the expiry of its certificate, whose
// connection may be older.
func TestAuthorizeAdmin_ExpiredProof(t *testing.T) {
	admission := NewAdmission(Policy{}, slog.New(slog.DiscardHandler), nil)
	for age, want := range map[time.Duration]codes.Code{time.Second: codes.Unauthenticated, -time.Hour: codes.OK} {
		client := &identity.Identity{Expires: time.Now().Add(-age)}
		require.Equal(t, want, status.Code(admission.AuthorizeAdmin(client, nil, false)), age)
	}
}

// request is a stream that receives requests without end.
type request struct{ grpc.ServerStream }

func (request) RecvMsg(any) error { return nil }

// TestAdmittedStream_ReceivesNoRequestAfterItsEnd: a handler that does not watch the context, such as reflection's, gets
// no further request.
func TestAdmittedStream_ReceivesNoRequestAfterItsEnd(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stream := &admittedStream{request{}, ctx}
	require.NoError(t, stream.RecvMsg(nil))
	cancel(io.ErrClosedPipe)
	require.ErrorIs(t, stream.RecvMsg(nil), io.ErrClosedPipe)
}

// TestAllowedForNode_DifferentRights: of clients with the same node ID and different rights, none decides.
func TestAllowedForNode_DifferentRights(t *testing.T) {
	admission := NewAdmission(Policy{Rules: Rules{}}, slog.New(slog.DiscardHandler), nil)
	for connected, namespace := range []string{"prod", "prod", "test"} {
		rights := NewRights(Permissions{Namespaces: []string{namespace}})
		admission.clients[&client{rights: map[string]*Rights{"n": rights}}] = struct{}{}
		_, decided := admission.AllowedForNode("n")
		require.Equal(t, connected < 2, decided)
	}
	_, decided := admission.AllowedForNode("other")
	require.False(t, decided, "no client is connected")
}
