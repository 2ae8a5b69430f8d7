package relay

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/config"
)

// TestCheckFiles_ReportsFilesOfSources has files of a source's tlsSettings that are not there found.
func TestCheckFiles_ReportsFilesOfSources(t *testing.T) {
	t.Parallel()
	for _, scheme := range config.Schemes() {
		if !strings.Contains(scheme.Address, "%s") { // it reads no server
			continue
		}
		name, secure := scheme.Names[0], scheme.Names[len(scheme.Names)-1]
		address := secure + strings.TrimPrefix(strings.ReplaceAll(scheme.Address, "%s", "h:1"), name)
		cfg, err := config.Parse("t.yaml", []byte("configSources: [{name: c, address: '"+address+
			"', tlsSettings: {mode: SIMPLE, caCertificates: nosuch.pem}}]\n"))
		if err != nil && strings.Contains(err.Error(), "tlsSettings: not for") {
			continue
		}
		if err != nil { // these are read with the configuration
			require.ErrorContains(t, err, "tlsSettings: caCertificates: ", address)
			continue
		}
		wrong, _ := CheckFiles(t.Context(), cfg)
		require.Len(t, wrong, 1, address)
		require.ErrorContains(t, wrong[0], "source c: tlsSettings.caCertificates: ", address)
	}
}
