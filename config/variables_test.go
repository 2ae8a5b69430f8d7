package config_test

import (
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
		"logLevel: info":    "t.yaml:1:1: logLevel: unknown key; logging is a matter of the flags --log-level",
		"log_level: info":   "t.yaml:1:1: log_level: unknown key; logging is a matter of the flags --log-level",
		"log: x":            "t.yaml:1:1: log: unknown key; logging is a matter of the flags --log-level",
	} {
		_, err := config.Parse("t.yaml", []byte(text))
		assert.ErrorContains(t, err, says)
	}
	_, err = config.Parse("t.yaml", []byte("configSources: [{address: 'eureka://me:${PASSWORD}@[/'}]"))
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "hunter2")
}
