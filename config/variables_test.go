package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/config"
)

func TestVariables(t *testing.T) {
	t.Setenv("WHERE", "/rules: [x]")
	t.Setenv("DEBUG", "false")
	t.Setenv("PASSWORD", "hunter2")
	c, err := config.Parse("t.yaml", []byte("admin: {debug: '${DEBUG}'}\nstateDir: /a$$b/$c\nconfigSources: [{name: a, address: "+
		"'fs://${WHERE}'}]\n"))
	require.NoError(t, err)
	assert.Equal(t, "/a$b/$c", c.StateDir)
	assert.True(t, config.Off(c.Admin.Debug))
	assert.Equal(t, "fs:///rules: [x]", c.ConfigSources[0].Address)

	for text, says := range map[string]string{
		"stateDir: x\nconfigSources: [{address: 'fs:///${NOT_SET}'}]": "t.yaml:2:27: configSources[0].address: the environment variable " +
			"NOT_SET is not set",
		"stateDir: ${}":     "t.yaml:1:11: stateDir: want ${NAME} with letters, digits and _, or $$ for a dollar sign, got ${}",
		"stateDir: ${A":     "t.yaml:1:11: stateDir: want ${NAME} with letters, digits and _, or $$ for a dollar sign, got ${A",
		"${DEBUG}: x":       "unknown key",
		"tls: x":            "t.yaml:1:1: tls: unknown key; TLS is listen.xdsTLS for clients",
		"listen: {tls: x}":  "t.yaml:1:10: listen.tls: unknown key; TLS is listen.xdsTLS for clients",
		"listen: {port: 1}": "t.yaml:1:10: listen.port: unknown key; the ports are in listen.xds and listen.admin",
		"adminTLS: {}":      "t.yaml:1:1: adminTLS: unknown key; the TLS of the admin server is listen.adminTLS",
		"sources: []":       "t.yaml:1:1: sources: unknown key; sources are the list configSources",
		"verify: []": "t.yaml:1:1: verify: unknown key; run tributary verify --istiod URL or --envoy URL " +
			"from a timer instead",
		"logLevel: info":                    "t.yaml:1:1: logLevel: unknown key; logging is a matter of the flags --log-level",
		"log_level: info":                   "t.yaml:1:1: log_level: unknown key; logging is a matter of the flags --log-level",
		"limits: {connectionsPerSecond: 5}": "t.yaml:1:10: limits.connectionsPerSecond: unknown key; it was removed: delete it",
		"limits: {stuckFor: 5m}":            "t.yaml:1:10: limits.stuckFor: unknown key; it was removed: delete it",
		"log: x":                            "t.yaml:1:1: log: unknown key; logging is a matter of the flags --log-level",
	} {
		_, err := config.Parse("t.yaml", []byte(text))
		assert.ErrorContains(t, err, says)
	}
	_, err = config.Parse("t.yaml", []byte("configSources: [{address: 'eureka://me:${PASSWORD}@[/'}]"))
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "hunter2")
}

// No message has the value of a variable, or of a parameter that is not known to be harmless.
func TestMessagesHaveNoSecrets(t *testing.T) {
	t.Setenv("TOKEN", "s3cr3t/pw")
	for _, text := range []string{
		"configSources: [{address: 'fs:///x', name: '${TOKEN}'}]", "stateDir: [${TOKEN}]", "debounce: {quiet: '${TOKEN}'}",
		"envoy: {unenforced: '${TOKEN}'}", "listen: {xds: '${TOKEN}'}", "configSources: [{address: '${TOKEN}'}]",
		"configSources: [{address: '${TOKEN}://h'}]", "limits: {streams: '${TOKEN}'}",
	} {
		_, err := config.Parse("t.yaml", []byte(text))
		require.Error(t, err, text)
		assert.NotContains(t, err.Error(), "s3cr3t", text)
	}
	_, err := config.Parse("t.yaml", []byte("debounce: {quiet: '${TOKEN}'}"))
	require.ErrorContains(t, err, `want a duration such as 30s or 1m30s, got "${TOKEN}"`)
	for _, scheme := range config.Schemes() {
		for _, name := range scheme.Names {
			for _, query := range []string{"tokn=s3cr3t", "kind=dubbo&tokn=s3cr3t", "auth=s3cr3t", "x=%zzs3cr3t&y=s3cr3t", "s3cr3t=s3cr3t&s3cr3t"} {
				c, err := config.Parse("t.yaml", []byte("configSources: [{address: '"+name+"://h:1/p?"+query+"'}]"))
				if err != nil {
					assert.NotContains(t, strings.ReplaceAll(err.Error(), `parameter "s3cr3t"`, ""), "s3cr3t", name+query)
					continue
				}
				for _, warning := range c.Warnings {
					assert.NotContains(t, warning.Message, "=s3cr3t", name+query)
				}
			}
		}
	}
}

func TestUnverifiedCertificates(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte("apiVersion: v1\nkind: Config\ncurrent-context: x\n"+
		"clusters: [{name: c, cluster: {insecure-skip-tls-verify: true, server: 'https://h'}}]\ncontexts: [{name: x, context: {cluster: c}}]\n"),
		0o600))
	const setting = "configSources[0].tlsSettings.insecureSkipVerify"
	for text, key := range map[string]string{
		"{address: 'xds://h:1', tlsSettings: {mode: SIMPLE, insecureSkipVerify: true}}":          setting,
		"{address: 'k8s://h:1', tlsSettings: {mode: SIMPLE, insecureSkipVerify: true}}":          setting,
		"{address: 'k8s://" + kubeconfig + "'}":                                                  "configSources[0].address",
		"{address: 'consul+https://h:1', tlsSettings: {mode: SIMPLE, insecureSkipVerify: true}}": setting,
	} {
		c, err := config.Parse("t.yaml", []byte("configSources: ["+text+"]"))
		require.NoError(t, err, text)
		require.Len(t, c.Warnings, 1, text)
		require.Equal(t, key, c.Warnings[0].Key)
		require.Contains(t, c.Warnings[0].Message, "the certificate of the server is not verified")
	}
}
