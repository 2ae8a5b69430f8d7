package relay

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	channelzpb "google.golang.org/grpc/channelz/grpc_channelz_v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"tributary/internal/testutil"
)

// TestStream_EndsOnExpiry: a certificate or a JWT that expires during a stream, and the removal of an authority, end
// that stream and no other.
func TestStream_EndsOnExpiry(t *testing.T) {
	t.Parallel()
	authority, second := testutil.NewAuthority(t), testutil.NewAuthority(t)
	public, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	jwks, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: public, KeyID: "1", Use: "sig", Algorithm: "EdDSA"}}})
	require.NoError(t, err)
	file := testutil.WriteFile(t, t.TempDir(), "jwks.json", string(jwks))
	rig := secured(t, authority, authority.PEM+second.PEM, strings.NewReplacer("require", "optional",
		"access: [", "access: [{who: {jwt: {issuer: ['https://i']}}}, ").Replace(secureXDS)+`
identity: {jwt: [{issuer: 'https://i', audiences: [tributary], jwks: `+file+`, clockSkew: 0s}]}`)
	token := func(expires time.Time) string {
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: key, KeyID: "1"}}, nil)
		require.NoError(t, err)
		raw, err := jwt.Signed(signer).Claims(jwt.Claims{
			Issuer: "https://i", Subject: "a", Audience: jwt.Audience{"tributary"},
			Expiry: jwt.NewNumericDate(expires),
		}).Serialize()
		require.NoError(t, err)
		return raw
	}
	over := func(bearer string, certificates ...tls.Certificate) *subscriber {
		creds := credentials.NewTLS(clientTLS(authority, certificates...))
		return subscribeTo(t, rig.XDSTLS().String(), creds, bearer, &corev3.Node{Id: "n"})
	}
	forever := time.Now().Add(time.Hour)
	stays, signed := over("", certified(t, authority, forever)), over(token(forever))
	untrusted := over("", certified(t, second, forever))
	for _, s := range []*subscriber{stays, signed, untrusted} {
		s.gets(t, 2)
	}
	soon := time.Now().Add(5 * time.Second) // a client that connects after the expiry gets another message
	for _, s := range []*subscriber{over("", certified(t, authority, soon)), over(token(soon))} {
		s.endsWith(t, codes.Unauthenticated, "the certificate or token has expired")
		require.WithinRange(t, time.Now(), soon.Truncate(time.Second), forever)
	}
	require.Contains(t, rig.log.String(), `identity=jwt:https://i|a err="the certificate or token has expired"`)
	require.Contains(t, rig.log.String(), `identity=spiffe://e/a err="the certificate or token has expired"`)

	write(t, rig.dir+"/ca.pem", authority.PEM)
	untrusted.endsWith(t, codes.Unauthenticated, "certificate signed by unknown authority")
	fill(t, rig.dir, "rules/all.yaml: prod/p*3")
	for _, s := range []*subscriber{stays, signed} {
		s.gets(t, 3)
	}
}

// subscribeTo is a stream to a server.
func subscribeTo(t *testing.T, address string, creds credentials.TransportCredentials, bearer string, node *corev3.Node) *subscriber {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	t.Cleanup(func() {
		cancel()
		require.NoError(t, conn.Close())
	})
	if bearer != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+bearer)
	}
	s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	require.NoError(t, err)
	if err := s.Send(&discovery.DiscoveryRequest{TypeUrl: typeURLs[0], Node: node}); !errors.Is(err, io.EOF) { // it was refused by then
		require.NoError(t, err)
	}
	return &subscriber{s}
}

// A rule allows each service other than xDS by its own name only.
func TestServices_AllowedByName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	names := []string{"reflection", "channelz", "csds", "debug", "admin"}
	tokens, lines, rules := make(map[string]string), "", "access:\n"
	for _, name := range names {
		token, line := newToken(t, name)
		tokens[name] = token
		lines += line
		rules += "- {who: {token: [" + name + "]}, allow: {services: [" + name + "]}}\n"
	}
	fill(t, dir, "rules/all.yaml: prod/p*2")
	write(t, dir+"/tokens", lines)
	restricted(t, dir, rules+"- {who: {cidr: [127.0.0.1]}, allow: {kinds: [se]}}\n")
	r := startReady(t, dir)
	conn := dial(t, r.XDS())
	within, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	asks := map[string]func(ctx context.Context) error{
		"reflection": func(ctx context.Context) error {
			return once(reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx))(&reflectionpb.ServerReflectionRequest{
				MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{},
			})
		},
		"channelz": func(ctx context.Context) error {
			_, err := channelzpb.NewChannelzClient(conn).GetServers(ctx, &channelzpb.GetServersRequest{})
			return err
		},
		"csds": func(ctx context.Context) error {
			_, err := statuspb.NewClientStatusDiscoveryServiceClient(conn).FetchClientStatus(ctx, &statuspb.ClientStatusRequest{})
			if err != nil {
				return err
			}
			return once(statuspb.NewClientStatusDiscoveryServiceClient(conn).StreamClientStatus(ctx))(&statuspb.ClientStatusRequest{})
		},
		"debug": func(ctx context.Context) error {
			return once(discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx))(&discovery.DiscoveryRequest{
				TypeUrl: "istio.io/debug/syncz", Node: &corev3.Node{Id: "sidecar~1.1.1.1~debug~cluster.local"},
			})
		},
	}
	for service, ask := range asks {
		for _, name := range append(names, "") {
			ctx := within
			if name != "" {
				ctx = metadata.AppendToOutgoingContext(within, "authorization", "Bearer "+tokens[name])
			}
			err := ask(ctx)
			if name == service {
				require.NoError(t, err, service)
			} else {
				require.Equal(t, codes.PermissionDenied, status.Code(err), "%s for a client that may %q: %v", service, name, err)
			}
		}
	}
}

// once returns a function that sends one request on a stream and waits for the response.
func once[Req, Resp any](s grpc.BidiStreamingClient[Req, Resp], err error) func(*Req) error {
	return func(req *Req) error {
		if err != nil {
			return err
		}
		if err := s.Send(req); err != nil && !errors.Is(err, io.EOF) { // it was refused by then
			return err
		}
		if _, err := s.Recv(); err != nil {
			return err
		}
		return s.CloseSend()
	}
}

// A client with NAMESPACES gets only objects that its rule allows.
func TestNamespacesOfClient_WithinItsRule(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fill(t, dir, "rules/all.yaml: prod/p*2 test/t*3 web/w*4")
	write(t, dir+"/tokens", "")
	restricted(t, dir, "access: [{who: {cidr: [127.0.0.1]}, allow: {namespaces: [prod, test]}}]\n")
	rig := startReady(t, dir)
	watching := func(namespaces string) *subscriber {
		metadata, err := structpb.NewStruct(map[string]any{"NAMESPACES": namespaces})
		require.NoError(t, err)
		return subscribeTo(t, rig.XDS().String(), insecure.NewCredentials(), "", &corev3.Node{Id: "n", Metadata: metadata})
	}
	for namespaces, want := range map[string]int{"prod": 2, "test,web": 3, "prod,test,web": 5, "web": 0} {
		watching(namespaces).gets(t, want)
	}
	// The same filter holds after a change of objects. A change of the rule ends the stream; the next one has the new
	// rights.
	watcher := watching("prod,web")
	watcher.gets(t, 2)
	fill(t, dir, "rules/all.yaml: prod/p*3 web/w*5")
	watcher.gets(t, 3)
	restricted(t, dir, "access: [{who: {cidr: [127.0.0.1]}, allow: {namespaces: [prod, test, web]}}]\n")
	rig.reloadFile(t)
	allowed := watching("prod,web")
	allowed.gets(t, 8)
	fill(t, dir, "rules/all.yaml: prod/p*1 web/w*5")
	allowed.gets(t, 6)
}
