package metadata

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An instance refuses, or its port has another protocol. The messages are those of the instance, and short.
func TestOverHTTP_Failures(t *testing.T) {
	long := strings.Repeat("x", 30_000)
	for name, test := range map[string]struct {
		answer        http.HandlerFunc
		says, without string
	}{
		"refusal": {
			func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such service", http.StatusNotFound) },
			"no such service", long,
		},
		"redirect": {
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/"+long)
				w.WriteHeader(http.StatusFound)
			},
			"302", long,
		},
		"no HTTP": { // the settings of TLS are those of the registry
			func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			"EOF", "tlsSettings",
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(test.answer)
			defer server.Close()
			address := server.Listener.Addr().String()
			_, err := overHTTP(t.Context(), address, instanceAt(t, address, "tri", "1", true))
			require.ErrorContains(t, err, test.says)
			require.NotContains(t, err.Error(), test.without)
		})
	}
}
