package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestErrors_ShowNoSecret has invalid addresses; the position of the password in them is ambiguous.
func TestErrors_ShowNoSecret(t *testing.T) {
	for _, text := range []string{
		"configSources: [{name: a, address: 'consul://127.0.0.1:1?token=s3cr3tpw'}]",
		"configSources: [{name: a, address: 'xds://reader:s3cr3tpw@127.0.0.1:1'}]",
		"configSources: ['consul://u:s3cr3tpw@h:1']",
		"configSources: consul://u:s3cr3tpw@h:1",
		"configSources: [{name: a, address: 'consul://u:s3/cr3tpw@h:1'}]",
		"configSources: [{name: a, address: 'consul://h:1#s3cr3tpw'}]",
		"configSources: [{name: a, address: 'consul:///u:s3cr3tpw@h:1'}]",
		"configSources: [{name: a, address: 'zookeeper://h:1?backup=u:s3cr3tpw@h:2'}]",
		"configSources: [{name: a, address: 'u:s3cr3tpw@h:1'}]",
		"configSources: [{name: a, address: 'consul-kv://h:1/mesh?token=s3cr3tpw'}]",
		"configSources: [{name: a, address: 'xds://h:1?token=s3cr3tpw'}]",
		"listen: {xds: 'u:s3cr3tpw@127.0.0.1:1'}\nconfigSources: [{name: a, address: 'fs:///rules'}]",
	} {
		_, err := Parse("t.yaml", []byte(text))
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), "cr3tpw", text)
	}
}
