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
	c, err := config.Parse("/etc/t.yaml", []byte(head+`
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
`))
	require.NoError(t, err)
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

	c, err = config.Parse("t.yaml", []byte(head))
	require.NoError(t, err)
	require.Nil(t, c.Rules(), "all see everything")
	require.Nil(t, c.Identity.Settings())
	c, err = config.Parse("t.yaml", []byte(head+"access: []\n"))
	require.NoError(t, err)
	require.NotNil(t, c.Rules(), "no client sees any object")
}

// TestAccess_InvalidRules: a missing key has no limit, so an empty key, as of a template, and an impossible rule are
// errors.
func TestAccess_InvalidRules(t *testing.T) {
	tls := "listen: {xdsTLS: {certificate: c, key: k, clientCAs: ca}}\n"
	for text, want := range map[string]string{
		"access:\n": "t.yaml:2:8: access: empty; leave the key out",
		"access: [{who: , allow: {namespaces: [a]}}]\n": "access[0].who: empty",
		"access: [{who: {cidr: []}}]\n":                 "access[0].who.cidr: empty",
		"access: [{allow: {namespaces: []}}]\n":         "access[0].allow.namespaces: empty",
		"access: [{allow: {namespaces: }}]\n":           "access[0].allow.namespaces: empty",
		"access: [{who: {subject: ['*', 'XY=a']}}]\n":   "access[0].who.subject[1]: \"XY=a\": the type of \"XY=a\" is unknown",
		"access: [~]\n": "access[0]: empty",
		"access: [{allow: {kinds: [Servicentry]}}]\n": `access[0].allow.kinds[0]: unknown kind "Servicentry" (did you mean ServiceEntry?)`,
		"access: [{allow: {kinds: ['']}}]\n":          "want a text",
		"access: [{allow: {namespaces: ['a*b']}}]\n": "a * stands at the beginning or at " +
			"the end, once",
		"access: [{allow: {types: [cds]}}]\n":    `want clusters, endpoints, listeners, routes, virtualHosts, secrets, got "cds"`,
		"access: [{allow: {services: [all]}}]\n": `want reflection, channelz, csds, debug, admin, got "all"`,
		"access: [{who: {cidr: [10.0.0.1/33]}}]\n": "want a network such as 10.0.0.0/8, " +
			"or an IP address",
		"access: [{who: {cidr: ['::ffff:10.0.0.0/104']}}]\n": "want a network",
		"access: [{who: {node: ['a*']}}]\n":                  "clients choose the IDs of their nodes",
		"access: [{who: {spiffe: ['spiffe://a/*']}}]\n": "no client has a verified certificate without " +
			"listen.xdsTLS.clientCAs",
		tls + "access: [{who: {token: [a]}}]\n": "there are no tokens without " +
			"identity.tokens",
		tls + "access: [{who: {jwt: {}}}]\n": "no JWT is taken without identity.jwt",
		"identity: {jwt: [{issuer: a, jwks: k}]}\n": "identity.jwt[0].audiences: " +
			"name this server as the issuer does",
		"identity: {jwt: [{issuer: a, audiences: [t]}]}\n":                                                "identity.jwt[0].jwks: missing",
		"identity: {jwt: [{issuer: a, audiences: [t], jwks: k, clockSkew: 1h}]}\n":                        "want 0s to 10m",
		"identity: {jwt: [{issuer: a, audiences: [t], jwks: k}, {issuer: a, audiences: [t], jwks: k}]}\n": "is there twice",
	} {
		_, err := config.Parse("t.yaml", []byte(head+text))
		require.ErrorContains(t, err, want, "%s", text)
	}
}

// TestRules_WithoutEffect warns of a rule without effect, and of a source that does not exist.
func TestRules_WithoutEffect(t *testing.T) {
	for text, want := range map[string][]string{
		"access: [{allow: {sources: ['*', a, rules]}}]\n": {`t.yaml:2:37: access[0].allow.sources[2]: there is no source of the name "rules"`},
		"access: [{}, {who: {cidr: [10.0.0.0/8]}}]\n": {"t.yaml:2:14: access[1]: the rule has no effect: " +
			"access[0] comes first and matches the same clients"},
		"access: [{who: {cidr: [10.0.0.0/8]}}, {who: {cidr: [10.1.0.0/16]}}, {}]\n": {"t.yaml:2:39: access[1]: the rule has no effect: " +
			"access[0] comes first and matches the same clients"},
		"access: [{who: {cidr: [10.1.0.0/16]}}, {who: {cidr: [10.0.0.0/8]}}]\n":              nil,
		"identity: {tokens: t}\naccess: [{who: {token: ['a*']}}, {who: {token: [ab, b]}}]\n": nil,
	} {
		c, err := config.Parse("t.yaml", []byte(head+text))
		require.NoError(t, err, text)
		var got []string
		for _, w := range c.Warnings {
			got = append(got, w.String())
		}
		require.Equal(t, want, got, text)
	}
}

func TestListen_ExposedWarning(t *testing.T) {
	pair := "certificate: c, key: k"
	for text, want := range map[string]string{
		"": "",
		"listen: {xds: ':16010'}\n": "t.yaml:2:15: listen.xds: :16010 has no TLS and no access rules: " +
			"anyone on the network can read everything",
		"listen: {xds: '10.1.2.3:16010'}": "10.1.2.3:16010 has no TLS and no access rules: anyone on the " +
			"network can read everything",
		"listen: {xds: 'localhost:1'}":                                     "",
		"listen: {xds: '[::1]:1'}":                                         "",
		"listen: {xds: 'unix:///run/x'}":                                   "",
		"listen: {xds: ':16010'}\naccess: [{who: {cidr: [10.0.0.0/8]}}]\n": "",
		"listen: {xdsTLS: {address: ':16012', " + pair + "}}": "listen.xdsTLS.address: :16012 has no access rules " +
			"and does not require client certificates",
		"listen: {xdsTLS: {" + pair + "}}": "listen.xdsTLS.address: :16012 has no access rules " +
			"and does not require client certificates: anyone who reaches it can read everything",
		"listen: {xdsTLS: {address: '127.0.0.1:16012', " + pair + "}}":        "",
		"listen: {xdsTLS: {address: ':16012', " + pair + ", clientCAs: ca}}":  "",
		"listen: {xdsTLS: {address: ':16012', " + pair + "}}\naccess: [{}]\n": "",
	} {
		c, err := config.Parse("t.yaml", []byte(head+text))
		require.NoError(t, err)
		if want == "" {
			require.Empty(t, c.Warnings, text)
			continue
		}
		require.Len(t, c.Warnings, 1, text)
		require.Contains(t, c.Warnings[0].String(), want)
	}
	c, err := config.Parse("t.yaml", []byte(head))
	require.NoError(t, err)
	c.Listen.XDS = "0.0.0.0:16010"
	c, err = config.New("command line", *c)
	require.NoError(t, err)
	require.Len(t, c.Warnings, 1, "also of the command line")
}
