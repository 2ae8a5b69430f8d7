package secret

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVeil(t *testing.T) {
	for _, text := range []string{
		"consul://u:s3cr3tpw@h:1", "consul://u:s3/cr3tpw@h:1", "consul://h:1#s3cr3tpw", "consul:///u:s3cr3tpw@h:1",
		"zookeeper://h:1?backup=u:s3cr3tpw@h:2",
		"u:s3cr3tpw@h:1", "consul-kv://h:1/mesh?token=s3cr3tpw", "xds://h:1?a=b&my-token=s3cr3tpw", "consul://u:s3%63r3tpw@h:1",
		"consul://u:a@h:1?backup=v:s3cr3tpw@h:2",
	} {
		var veil Veil
		veil.Cover(text, "other", "fs:///a@b/rules")
		for _, said := range []string{"got \"" + text + "\"", "parse " + text + ": no"} {
			hides := veil.Hide(said)
			require.NotContains(t, hides, "cr3tpw", text)
			require.NotContains(t, hides, "%63r3tpw", text)
		}
		require.Equal(t, `other fs:///a@b/rules: want a port from 1 to 65535, got "x"`,
			veil.Hide(`other fs:///a@b/rules: want a port from 1 to 65535, got "x"`), text)
	}
	var v Veil
	v.Cover("consul://u:s3/cr3tpw@h:1", "consul://con:sul@h")
	require.Equal(t, `"consul://<secret>@h:1": want a port, got "<secret>"`, v.Hide(`"consul://u:s3/cr3tpw@h:1": want a port, got "s3"`))
}

func TestVeilLeavesCommonNames(t *testing.T) {
	var veil Veil
	veil.Cover("consul://user:pw1@127.0.0.1:8500")
	require.Equal(t, "a user and password stand in CONSUL_HTTP_AUTH, and not <secret> or <secret>",
		veil.Hide("a user and password stand in CONSUL_HTTP_AUTH, and not pw1 or user:pw1"))
	veil = Veil{}
	veil.Cover("consul://admin:admin@127.0.0.1:8500")
	require.Equal(t, "<secret>", veil.Hide("admin"))
}
