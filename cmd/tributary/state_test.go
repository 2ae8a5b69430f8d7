package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime/metrics"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/server/admin"
)

// servedNames are the names that a client sees.
func servedNames(t *testing.T, s server) string {
	t.Helper()
	result := command(t, "get", "se", "-n", "shop", "-o", "json", "--server", s.xds)
	require.Zero(t, result.code, result.stderr)
	var list struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	require.NoError(t, json.Unmarshal([]byte(result.stdout), &list))
	var names []string
	for _, i := range list.Items {
		names = append(names, i.Metadata.Name)
	}
	return strings.Join(names, " ")
}

// TestEmptiedByMistake removes the files of a running server and of one that does not run, and then lets them go.
func TestEmptiedByMistake(t *testing.T) {
	dir, state := t.TempDir()+"/rules", t.TempDir()
	var names []string
	for i := range 12 {
		name := fmt.Sprintf("s%02d", i)
		names = append(names, name)
		write(t, fmt.Sprintf("%s/%s.yaml", dir, name), entry(name, 80))
	}
	want := strings.Join(names, " ")
	args := append(served(dir), "--state-dir", state)
	held := func(s server) {
		t.Helper()
		eventually(t, func() error {
			var guarded []admin.Guarded
			_, body := s.page(t, "/debug/guard")
			if err := json.Unmarshal([]byte(body), &guarded); err != nil {
				return err
			}
			if len(guarded) != 1 || guarded[0].Objects != 12 {
				return errors.New(body)
			}
			return nil
		})
		assert.Equal(t, want, servedNames(t, s))
	}
	t.Run("while it runs", func(t *testing.T) {
		s := serving(t, args...)
		s.awaitReady(t)
		require.Equal(t, want, servedNames(t, s))
		for _, name := range names {
			require.NoError(t, os.Remove(fmt.Sprintf("%s/%s.yaml", dir, name)))
		}
		held(s)
	})
	t.Run("after a restart", func(t *testing.T) {
		s := serving(t, args...)
		s.awaitReady(t)
		held(s)
		status, body := s.request(t, http.MethodPost, "/-/guard/release?source=rules")
		require.Equal(t, http.StatusOK, status, body)
		write(t, dir+"/after.yaml", entry("after", 80))
		eventually(t, func() error {
			if names := servedNames(t, s); names != "after" {
				return errors.New(names)
			}
			return nil
		})
	})
	t.Run("after another restart", func(t *testing.T) {
		s := serving(t, args...)
		s.awaitReady(t)
		assert.Equal(t, "after", servedNames(t, s), "a released object stays absent")
	})
}

func TestRestart_WhileDirectoryIsMissing(t *testing.T) {
	dir, state := t.TempDir()+"/rules", t.TempDir()
	write(t, dir+"/a.yaml", entry("reviews", 80)+"---\n"+entry("ratings", 80))
	args := append(served(dir), "--state-dir", state)
	t.Run("before", func(t *testing.T) { serving(t, args...).awaitReady(t) })
	require.NoError(t, os.Rename(dir, dir+".moved"))
	t.Run("gone", func(t *testing.T) {
		server := serving(t, args...)
		server.awaitReady(t)
		assert.Equal(t, "ratings reviews", servedNames(t, server))
		stale := func(want bool) {
			t.Helper()
			eventually(t, func() error {
				_, body := server.page(t, "/debug/sources")
				if strings.Contains(body, `"stale": true`) != want {
					return errors.New(body)
				}
				return nil
			})
		}
		stale(true)
		require.NoError(t, os.Rename(dir+".moved", dir))
		stale(false)
		assert.Equal(t, "ratings reviews", servedNames(t, server))
	})
}

// Objects of an earlier run are served at once, but the start, with rare garbage collection, lasts until the sources
// were read.
func TestServe_StartupEndsWithSync(t *testing.T) {
	t.Setenv("GOGC", "")
	percent := func() uint64 {
		sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	usual := percent()
	becomes := func(want uint64) {
		t.Helper()
		eventually(t, func() error {
			if got := percent(); got != want {
				return fmt.Errorf("GOGC is %d, not %d", got, want)
			}
			return nil
		})
	}
	dir, state := t.TempDir()+"/rules", t.TempDir()
	write(t, dir+"/a.yaml", entry("reviews", 80))
	args := append(served(dir), "--state-dir", state)
	t.Run("before", func(t *testing.T) {
		serving(t, args...).awaitReady(t)
		becomes(usual)
	})
	require.NoError(t, os.Rename(dir, dir+".moved"))
	t.Run("read late", func(t *testing.T) {
		s := serving(t, args...)
		s.awaitReady(t)
		eventually(t, func() error {
			if _, body := s.page(t, "/debug/sources"); !strings.Contains(body, `"unreachable"`) {
				return errors.New(body)
			}
			return nil
		})
		require.Greater(t, percent(), usual)
		require.NoError(t, os.Rename(dir+".moved", dir))
		becomes(usual)
	})
}

func TestStateDirectoryInUse(t *testing.T) {
	dir, state := t.TempDir(), t.TempDir()
	write(t, dir+"/a.yaml", entry("reviews", 80))
	args := append(served(dir), "--state-dir", state)
	serving(t, args...).awaitReady(t)
	got := command(t, append([]string{"serve"}, args...)...)
	assert.Equal(t, 1, got.code)
	assert.Contains(t, got.stderr, fmt.Sprintf("state directory %s is in use by another tributary, process %d", state, os.Getpid()))
}

func TestServe_StateDirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/rules/a.yaml", entry("reviews", 80))
	write(t, dir+"/t.yaml", "configSources: [{address: 'fs://./rules'}]")
	file := append([]string{"-c", dir + "/t.yaml"}, freely...)
	write(t, dir+"/named/t.yaml", "stateDir: ../state\nconfigSources: [{address: 'fs://"+dir+"/rules'}]")
	naming := append([]string{"-c", dir + "/named/t.yaml"}, freely...)
	state := dir + "/state"
	isStored := func() bool {
		files, err := filepath.Glob(filepath.Join(state, "sources", "rules.db"))
		require.NoError(t, err)
		stores, err := filepath.Glob(filepath.Join(state, "t-*", "sources", "rules.db")) // of the configuration file
		require.NoError(t, err)
		return len(files)+len(stores) == 1
	}
	for name, c := range map[string]struct {
		env    map[string]string
		args   []string
		stored bool
	}{
		"systemd":          {map[string]string{"STATE_DIRECTORY": state + ":/nonexistent"}, file, true},
		"off":              {map[string]string{"STATE_DIRECTORY": state}, append([]string{"--state-dir", "off"}, file...), false},
		"by flag":          {nil, append([]string{"--state-dir", state}, file...), true},
		"by configuration": {map[string]string{"STATE_DIRECTORY": "/nonexistent"}, naming, true},
		"flag before the rest": {
			map[string]string{"STATE_DIRECTORY": state},
			append([]string{"--state-dir", dir + "/other"}, naming...),
			false,
		},
		"user's directory":         {map[string]string{"XDG_STATE_HOME": dir}, file, true},
		"without a file":           {map[string]string{"XDG_STATE_HOME": dir}, served(dir + "/rules"), false},
		"by default, and unusable": {nil, file, false},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			state = dir + "/state"
			if c.env["XDG_STATE_HOME"] != "" {
				state = dir + "/tributary"
			}
			t.Run("serving", func(t *testing.T) {
				s := serving(t, c.args...)
				s.awaitReady(t)
				const warned = `"level":"WARN","msg":"nothing is kept across restarts; set stateDir, or stateDir: off if that is as it should be"`
				assert.Equal(t, name == "by default, and unusable", strings.Contains(s.log.String(), warned))
			})
			assert.Equal(t, c.stored, isStored())
			require.NoError(t, os.RemoveAll(state))
		})
	}
	refused := func(args ...string) {
		t.Helper()
		got := command(t, append([]string{"serve"}, args...)...)
		assert.Equal(t, 1, got.code)
		assert.Contains(t, got.stderr, "state directory: mkdir "+dir+"/t.yaml: not a directory")
	}
	refused(append([]string{"--state-dir", dir + "/t.yaml"}, file...)...)
	write(t, dir+"/named/t.yaml", "stateDir: ../t.yaml\nconfigSources: [{address: 'fs://"+dir+"/rules'}]")
	refused(naming...)
	t.Setenv("STATE_DIRECTORY", dir+"/t.yaml")
	refused(file...)
}
