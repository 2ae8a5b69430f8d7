package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"tributary/e2e/fixture"
)

// alerts are the expressions of the rules, by name.
func alerts(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../docs/monitoring/rules.yaml")
	require.NoError(t, err)
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &rules))
	expressions := make(map[string]string)
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			expressions[r.Alert] = r.Expr
		}
	}
	return expressions
}

// drill is one case of the table in docs/operating.md.
type drill struct {
	alert string // that fires, but for its time
	// part of the output of `status --check`, which leads to the cause
	says  string
	cause func(t *testing.T, dir string) (tributary *fixture.Tributary, happens func()) // the server in trouble
}

// drills are the cases, by name, as in docs/operating.md.
func drills() map[string]drill {
	return map[string]drill{
		"a registry is down": {
			"TributarySourceUnreadable", "source up is unreachable: ",
			func(t *testing.T, dir string) (*fixture.Tributary, func()) {
				up := fixture.StartTributary(t, fixture.Files("rules", dir))
				return fixture.StartTributary(t, fixture.Upstream("up", up.XDS)), up.Kill
			},
		},
		"a source hangs": {
			"TributarySourceUnreadable", "source up is unreachable: ",
			func(t *testing.T, dir string) (*fixture.Tributary, func()) {
				up := fixture.StartTributary(t, fixture.Files("rules", dir))
				t.Cleanup(func() { up.Signal(t, syscall.SIGCONT) })
				return fixture.StartTributary(t, fixture.Upstream("up", up.XDS)), func() { up.Signal(t, syscall.SIGSTOP) }
			},
		},
		"much is gone": {
			"TributaryLossHeld", "source rules lost 25 objects and 25 endpoints, which are held: ",
			func(t *testing.T, dir string) (*fixture.Tributary, func()) {
				fill(t, dir)
				return fixture.StartTributary(t, fixture.Files("rules", dir)), func() { empty(t, dir) }
			},
		},
		"a file is bad": {
			"TributaryObjectsQuarantined", "1 object is not valid, and quarantined",
			func(t *testing.T, dir string) (*fixture.Tributary, func()) {
				return fixture.StartTributary(t, fixture.Files("rules", dir)), func() {
					write(t, dir, "a.yaml", strings.Replace(serviceEntry("a", 80), "hosts", "host", 1))
				}
			},
		},
		"a route leads nowhere": {
			"TributaryReferencesUnresolved", "no ServiceEntry has the host gone.example",
			func(t *testing.T, dir string) (*fixture.Tributary, func()) {
				return fixture.StartTributary(t, fixture.Files("rules", dir)), func() {
					write(t, dir, "b.yaml", `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: r, namespace: shop}
spec: {hosts: [r.example], http: [{route: [{destination: {host: gone.example}}]}]}
`)
				}
			},
		},
		"a client rejects": {"TributaryClientsReject", "e2e-client at 127.0.0.1", func(t *testing.T, dir string) (*fixture.Tributary, func()) {
			tributary := fixture.StartTributary(t, fixture.Files("rules", dir))
			return tributary, func() {
				stream := fixture.OpenStream(t, tributary.XDS, "e2e-client")
				stream.Subscribe(t, serviceEntries, "")
				stream.Nack(t, stream.Next(t), "", "not to my liking")
			}
		}},
		"a certificate expires": {
			"TributaryCertificateExpires", "the certificate of listen.xdsTLS expires at ",
			func(t *testing.T, dir string) (*fixture.Tributary, func()) {
				files := t.TempDir()
				certificate, key := fixture.SelfSigned(t, files)
				tributary := fixture.StartTributaryWith(t, "listen: {xdsTLS: {address: '"+fixture.Loopback(fixture.FreePort(t))+"', certificate: '"+
					certificate+"', key: '"+key+"'}}\n"+
					"configSources: [{name: rules, address: 'fs://"+dir+"'}]\n")
				return tributary, func() { fixture.SelfSignedUntil(t, files, time.Now().Add(10*time.Minute)) }
			},
		},
		"the disk of the state is full": {
			"TributaryStateNotWritten", "source rules is not kept on disk: ",
			func(t *testing.T, dir string) (*fixture.Tributary, func()) {
				if os.Getuid() != 0 {
					t.Skip("only root may mount a small disk")
				}
				tributary := fixture.StartTributary(t, fixture.Files("rules", dir))
				tributary.AwaitReady(t)
				tributary.Kill()
				fixture.Run(t, "mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", tributary.State)
				t.Cleanup(func() {
					tributary.Kill()
					require.NoError(t, syscall.Unmount(tributary.State, 0))
				})
				tributary.Restart(t)
				tributary.AwaitAlive(t)
				return tributary, func() {
					for i := range 40 {
						write(t, dir, fmt.Sprintf("b%d.yaml", i), strings.Repeat("# "+strings.Repeat("x", 80)+"\n", 50)+serviceEntry(fmt.Sprint("b", i), 80))
					}
					require.Error(t, fillUp(filepath.Join(tributary.State, "filler")))
					write(t, dir, "a.yaml", serviceEntry("a", 81))
				}
			},
		},
	}
}

// fillUp writes until there is no more room.
func fillUp(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // no more is written
	for {
		if _, err := file.Write(make([]byte, 4096)); err != nil {
			return err
		}
	}
}

// TestFireDrill causes the incidents of on-call duty, and shows that the first command leads to the cause, that the
// alert fires, and that no command reports success.
func TestFireDrill(t *testing.T) {
	t.Parallel()
	rules := alerts(t)
	table, err := os.ReadFile("../docs/operating.md")
	require.NoError(t, err)
	for name, d := range drills() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, string(table), "| "+name+" |")
			dir := t.TempDir()
			write(t, dir, "a.yaml", serviceEntry("a", 80))
			tributary, happens := d.cause(t, dir)
			tributary.AwaitReady(t)
			check := func() (text string, code int) {
				return fixture.Run(t, fixture.TributaryBinary(t), "status", "--check", "--admin", tributary.Admin)
			}
			output, code := check()
			require.Zero(t, code, output)
			series := make(scraped)
			series.scrape(t, 0, tributary)
			happens()
			tributary.WaitFor(t, 2*time.Minute, func() error { // a connection that hangs is noticed by its keepalive
				if output, code = check(); !strings.Contains(output, d.says) {
					return fmt.Errorf("it says %q", output)
				}
				return nil
			})
			assert.Equal(t, 3, code)
			series.scrape(t, 1, tributary)
			require.NotEmpty(t, rules[d.alert], d.alert)
			assert.Empty(t, series.empty(t, 1, []string{rules[d.alert]}), "%s does not fire", d.alert)
			assert.Contains(t, string(table), d.alert)
			t.Logf("%s: %s", d.alert, output)
		})
	}
}
