package model

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"
)

// No name of a credential leads out of the folder of credentials.
func TestCredentialsStayInTheirFolder(t *testing.T) {
	t.Parallel()
	for name, folder := range map[string]string{
		"a": "a", "a.b": "a.b", "a..": "a..", "kubernetes://a": "a", "kubernetes://n/a": "n/a", "kubernetes-gateway://n/a": "n/a",
		"configmap://n/a": "n/a",
	} {
		got, ok := CredentialFolder(name)
		require.True(t, ok, name)
		require.Equal(t, folder, got, name)
	}
	names := []string{
		"", ".", "..", "...", ".a", "a/..", "../a", "/x", "//x", "a/b",
		"a/", "a/../..", `..\a`, `a\..\b`, "a\x00", "\x00", "a\n", "..\x00", "a/./b",
	}
	for _, scheme := range []string{
		"", "kubernetes://", "kubernetes-gateway://", "configmap://", "kubernetes-gateway://n/", "configmap://n/",
		"kubernetes://n/", "builtin://", "://",
	} {
		for _, name := range names {
			if folder, ok := CredentialFolder(scheme + name); ok {
				require.True(t, filepath.IsLocal(folder), scheme+name)
				require.NotContains(t, strings.Split(folder, "/"), "..", scheme+name)
				require.NotContains(t, folder, "\x00")
			}
			tls := &networking.ServerTLSSettings{CredentialName: scheme + name, CaCertCredentialName: scheme + name}
			for _, secret := range append(Certificates(tls, "/dir"), Authority(tls, "/dir")) {
				require.NotContains(t, secret, "..", scheme+name)
			}
		}
	}
	for _, name := range names {
		_, ok := CredentialFolder(name)
		require.False(t, ok, "%q", name)
	}
}
