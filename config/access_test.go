package config_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/config"
	"tributary/server/access"
	"tributary/server/identity"
)

const head = "configSources: [{address: 'fs:///a'}]\n"

func TestAccess(t *testing.T) {
	c := parsed(t, "/etc/t.yaml", head+`
listen:
  xdsTLS: {certificate: c, key: k, clientCAs: ca}
identity:
  tokens: tokens
  jwt: [{issuer: 'https://issuer', audiences: [tributary], jwks: keys.json}]
access:
- who: {spiffe: ['spiffe://cluster.local/ns/prod/*'], node: ['sidecar~*']}
  allow: {kinds: [se, VirtualService], namespaces: [prod, '']}
- who: {cidr: [10.0.0.0/8, '::1'], dns: [Client.Example]}
  allow: {types: [clusters, 'end*'], services: [reflection]}
- who: {jwt: {subject: ['ci*']}}
`)
	require.Equal(t, "/etc/tokens", c.Identity.Tokens)
	rules := c.Rules()
	require.Len(t, rules, 3)
	require.Equal(t, "/etc/t.yaml:9:3: access[0]", rules[0].Place)
	for kind, want := range map[string]bool{"ServiceEntry": true, "DestinationRule": false} { // by its short name
		allowed, _ := access.Rules{{Rights: rules[0].Rights}}.Check(access.Query{
			Client: &identity.Identity{}, Content: map[string]string{"kind": kind},
		})
		require.Equal(t, want, allowed, kind)
	}
	require.Nil(t, rules[2].Rights, "everything")
	client := &identity.Identity{DNS: []string{"client.example"}, Address: netip.IPv6Loopback()}
	require.Same(t, &rules[1], rules.Find(client, ""))
	require.Equal(t, "30s", c.Identity.JWT[0].ClockSkew.String())
	require.Equal(t, []identity.Issuer{{Issuer: "https://issuer", Audiences: []string{"tributary"}, JWKS: "/etc/keys.json", ClockSkew: 30e9}},
		c.Identity.Settings().Issuers)

	c = parsed(t, "t.yaml", head)
	require.Nil(t, c.Rules(), "all see everything")
	require.Nil(t, c.Identity.Settings())
	c = parsed(t, "t.yaml", head+"access: []\n")
	require.NotNil(t, c.Rules(), "no client sees any object")
}

// Flags may expose a listener, too.
func TestListen_ExposedByFlag_Warned(t *testing.T) {
	c := parsed(t, "t.yaml", head)
	c.Listen.XDS = "0.0.0.0:16010"
	c, err := config.New("command line", *c)
	require.NoError(t, err)
	require.Len(t, c.Warnings, 1)
}
