package envoy

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/server/envoy/model"
	"tributary/server/envoy/translate"
	"tributary/server/xds"
)

// TestRejectedSecret_SentAgain holds that a rejected secret is sent again with other bytes, later with each try, and no
// longer once no host needs it.
func TestRejectedSecret_SentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scope := newScope(model.Profile{Role: model.Sidecar}, xds.Debounce{}, new(fullRoutes), new(bodies))
		name := model.RootName("/ca.crt", "")
		plain := translate.EntryOf(translate.SecretOf(name))
		respelled := translate.EntryOf(translate.RespelledSecretOf(name))
		scope.secretUsers[name] = 1
		changes := make(commits)
		changes.put(scope.secrets, plain)
		scope.group.Apply(changes)
		served := func() string {
			synctest.Wait()
			scope.catching.Lock()
			defer scope.catching.Unlock()
			return scope.secrets.Get(name).Version
		}
		delay := secretRetry
		for _, step := range [][2]*xds.Entry{{plain, respelled}, {respelled, plain}, {plain, respelled}} {
			scope.retrySecret(step[0])
			scope.retrySecret(step[0]) // Another client.
			time.Sleep(delay - time.Second)
			require.Equal(t, step[0].Version, served())
			time.Sleep(2 * time.Second)
			require.Equal(t, step[1].Version, served())
			delay *= 2
		}
		scope.retrySecret(respelled)
		scope.catching.Lock()
		delete(scope.secretUsers, name)
		scope.catching.Unlock()
		time.Sleep(secretRetryMax + time.Second)
		require.Equal(t, respelled.Version, served())
	})
}
