package check

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/sources/derive"
)

// TestDerive checks the objects derived from Kubernetes' APIs, in files and texts alike. Their defects have a line.
func TestDerive(t *testing.T) {
	const text = `apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: a}
spec: {ingressClassName: istio, defaultBackend: {service: {name: a, port: {number: 80}}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: b}
spec: {rules: 1}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: c}
`
	name := filepath.Join(t.TempDir(), "a.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	for _, look := range []func(l *Linter) error{
		func(l *Linter) error { return l.Path(t.Context(), name) },
		func(l *Linter) error { _, err := l.Text(t.Context(), name, []byte(text), false); return err },
	} {
		linter := Linter{Derive: &derive.Options{}}
		require.NoError(t, look(&linter))
		found := make(map[string]Severity)
		for _, f := range linter.Findings {
			found[fmt.Sprintf("%s %s", filepath.Base(f.Place), f.Message)[:34]] = f.Severity
		}
		require.Equal(t, map[string]Severity{
			"a.yaml:1 Ingress default/a: spec.d": Warning, "a.yaml:6 HTTPRoute default/b: spec": Error, "a.yaml:11:13 Deployment of apps/v1": Note,
		}, found)
		require.Equal(t, 1, linter.Objects, "the Gateway")
		require.Equal(t, 1, linter.Foreign)

		linter = Linter{}
		require.NoError(t, look(&linter))
		require.Equal(t, 3, linter.Foreign)
	}
}
