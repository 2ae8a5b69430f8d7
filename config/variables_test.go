package config_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"tributary/config"
)

func TestVariables(t *testing.T) {
	t.Setenv("WHERE", "/rules: [x]")
	t.Setenv("DEBUG", "false")
	t.Setenv("PASSWORD", "hunter2")
	c := parsed(t, "t.yaml", "admin: {debug: '${DEBUG}'}\nstateDir: /a$$b/$c\nconfigSources: [{name: a, address: "+
		"'fs://${WHERE}'}]\n")
	assert.Equal(t, "/a$b/$c", c.StateDir)
	assert.True(t, config.Off(c.Admin.Debug))
	assert.Equal(t, "fs:///rules: [x]", c.ConfigSources[0].Address)
}

// No message has the value of a variable, or of a parameter that is not known to be harmless.
func TestMessagesHaveNoSecrets(t *testing.T) {
	t.Setenv("TOKEN", "s3cr3t/pw")
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
