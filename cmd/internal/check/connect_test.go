package check

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/config"
	"tributary/sources"
	"tributary/sources/eureka"
	"tributary/sources/eureka/eurekatest"
	"tributary/sources/kube/kubetest"
)

// TestConnect reads a registry, and one that cannot be read.
func TestConnect(t *testing.T) {
	server, away := eurekatest.Start(t), eurekatest.Start(t)
	away.Stop()
	server.Put("orders", eurekatest.Instance("1", "10.0.0.1", 80, nil))
	down := eurekatest.Instance("2", "10.0.0.2", 80, nil)
	down["status"] = "DOWN"
	server.Put("orders", down)
	text := "configSources:\n- {name: shop, address: \"" + server.Address() + "\"}\n- {name: away, address: \"" + away.Address() + "\"}\n"
	var linter Linter
	skipped, err := linter.Text(t.Context(), "t.yaml", []byte(text), false)
	require.NoError(t, err)
	require.Len(t, skipped, 2, "nobody is asked")

	linter = Linter{Connect: func(s config.Source) (sources.Source, error) {
		return eureka.New(s.Address, s.Settings.(*config.Eureka).Source())
	}}
	skipped, err = linter.Text(t.Context(), "t.yaml", []byte(text), false)
	require.NoError(t, err)
	require.Empty(t, skipped)
	require.Equal(t, []string{"source shop (" + server.Address() + "): 1 object with 1 endpoint would be served, 1 instance is left out"},
		linter.Connected)
	require.Len(t, linter.Findings, 1)
	require.Equal(t, Error, linter.Findings[0].Severity)
	require.Contains(t, linter.Findings[0].Message, "source away ("+away.Address()+"): no server answers: ")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = linter.Text(ctx, "t.yaml", []byte(text), false)
	require.ErrorIs(t, err, context.Canceled)
}

// TestConnect_MissingRights names the missing rights of a source, and the roles that grant them. The source reads the
// other kinds.
func TestConnect_MissingRights(t *testing.T) {
	const entries, services = "serviceentries.networking.istio.io", "virtualservices.networking.istio.io"
	server := kubetest.Start(t, entries, services)
	server.Put(entries, "shop", "a", "spec: {hosts: [a.example], resolution: DNS, ports: [{number: 80, name: http}]}")
	server.Deny(services)
	linter := Linter{Connect: func(s config.Source) (sources.Source, error) { return s.New(config.Parts{}) }}
	_, err := linter.Text(t.Context(), "t.yaml", []byte("configSources:\n- {name: k, address: 'k8s://"+server.Host()+
		"', tlsSettings: {mode: DISABLE}, namespaces: [shop]}\n"), false)
	require.NoError(t, err)
	require.Len(t, linter.Findings, 1)
	require.Equal(t, Denied, linter.Findings[0].Rule)
	require.Contains(t, linter.Findings[0].Message, "no right to list and watch "+services+" in namespace shop")
	require.Contains(t, linter.Findings[0].Fix, "kind: RoleBinding\n")
	require.Len(t, linter.Connected, 1)
	require.Contains(t, linter.Connected[0], "1 object with 0 endpoints would be served")
}

// endingSource reports its health, and ends by itself.
type endingSource struct{ health sources.Health }

func (s *endingSource) Run(_ context.Context, sink sources.Sink) error {
	sink.Report(s.health)
	return errors.New("it ends")
}

// TestConnect_RunEnds: only a source that reports a denial is denied.
func TestConnect_RunEnds(t *testing.T) {
	for state, want := range map[sources.State]Finding{
		sources.Starting: {Rule: Unreadable, Message: "it ends"}, sources.Degraded: {Rule: Unreadable, Message: "it ends"},
		sources.Healthy: {Rule: Unreadable, Message: "it ends"}, sources.Unreachable: {Rule: Unreadable, Message: "reported"},
		sources.Denied: {Rule: Denied, Message: "reported"},
	} {
		linter := Linter{Connect: func(config.Source) (sources.Source, error) {
			return &endingSource{sources.Health{State: state, Message: "reported"}}, nil
		}}
		const text = "configSources:\n- {name: shop, address: 'eureka://127.0.0.1:1'}\n"
		_, err := linter.Text(t.Context(), "t.yaml", []byte(text), false)
		require.NoError(t, err)
		require.Len(t, linter.Findings, 1, state)
		require.Equal(t, want.Rule, linter.Findings[0].Rule, state)
		require.Contains(t, linter.Findings[0].Message, want.Message, state)
	}
}

// TestConnect_ChecksObjects reads a registry with an invalid object, and one with transforms.
func TestConnect_ChecksObjects(t *testing.T) {
	server := eurekatest.Start(t)
	server.Put("orders", eurekatest.Instance("1", "10.0.0.1", 80, nil))
	server.Put("carts", eurekatest.Instance("1", "10.0.0.2", 80, nil))
	twice := eurekatest.Instance("2", "10.0.0.3", 443, nil) // whose plain and secure port are one
	twice["securePort"] = map[string]any{"$": 443, "@enabled": "true"}
	server.Put("twice", twice)
	check := func(more string) *Linter {
		l := &Linter{Connect: func(s config.Source) (sources.Source, error) {
			return eureka.New(s.Address, s.Settings.(*config.Eureka).Source())
		}}
		_, err := l.Text(t.Context(), "t.yaml", []byte("configSources:\n- {name: shop, address: \""+server.Address()+"\""+more+"}\n"), false)
		require.NoError(t, err)
		return l
	}
	l := check("")
	require.Len(t, l.Findings, 1)
	require.Equal(t, Error, l.Findings[0].Severity)
	require.Contains(t, l.Findings[0].Message, "port 443")
	require.NotEmpty(t, l.Findings[0].Place)
	require.Equal(t, 3, l.Objects)
	require.Equal(t, []string{"source shop (" + server.Address() + "): 3 objects with 3 endpoints would be served, 1 error"}, l.Connected)

	l = check(", transform: {exclude: [{hosts: ['*orders*']}]}")
	require.Equal(t, 2, l.Objects, "one is left out by the transforms")
}
