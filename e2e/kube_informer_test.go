package e2e

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	networking "istio.io/client-go/pkg/apis/networking/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kuberuntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubewatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"tributary/e2e/fixture"
)

// informed are the kinds that a source reads in TestKubeScale, and their types in Go.
var informed = map[schema.GroupVersionResource]func() metav1.Object{
	{Version: "v1", Resource: "services"}: func() metav1.Object { return new(corev1.Service) },
	{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}: func() metav1.Object {
		return new(discoveryv1.EndpointSlice)
	},
	{Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"}: func() metav1.Object {
		return new(networking.VirtualService)
	},
}

// informers returns how many bytes the objects of a cluster take in the caches of client-go's informers: without types,
// as `dynamic` has them, and typed.
func informers(t *testing.T, kubeconfig string) (untyped, typed int) {
	t.Helper()
	before := heap()
	stores := inform(t, kubeconfig, func(n int) { untyped = n - before })
	caches := make([]cache.Store, 0, len(stores))
	for gvr, objects := range stores {
		store := cache.NewStore(cache.MetaNamespaceKeyFunc)
		for _, o := range objects {
			object := informed[gvr]()
			require.NoError(t, kuberuntime.DefaultUnstructuredConverter.FromUnstructured(o.(*unstructured.Unstructured).Object, object))
			require.NoError(t, store.Add(object))
		}
		caches = append(caches, store)
	}
	clear(stores)
	typed = heap() - before
	runtime.KeepAlive(caches)
	return untyped, typed
}

// inform runs informers until they have all objects, returns the objects, and reports the heap in use then.
func inform(t *testing.T, kubeconfig string, used func(int)) map[schema.GroupVersionResource][]any {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	stores := make(map[schema.GroupVersionResource]cache.Store)
	for gvr := range informed {
		store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
			ObjectType: new(unstructured.Unstructured), Handler: cache.ResourceEventHandlerFuncs{},
			ListerWatcher: &cache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (kuberuntime.Object, error) {
					return client.Resource(gvr).List(ctx, o)
				},
				WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (kubewatch.Interface, error) {
					return client.Resource(gvr).Watch(ctx, o)
				},
			},
		})
		running.Go(func() { informer.RunWithContext(ctx) })
		require.True(t, cache.WaitForCacheSync(ctx.Done(), informer.HasSynced), gvr)
		stores[gvr] = store
	}
	used(heap())
	objects := make(map[schema.GroupVersionResource][]any)
	for gvr, store := range stores {
		objects[gvr] = store.List()
	}
	return objects
}

// heap returns how many bytes this process has in use after a garbage collection.
func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc) //nolint:gosec // it is less
}

var heapAlloc = regexp.MustCompile(`# HeapAlloc = (\d+)`)

// memoryOf describes the memory of a process that serves its profiles at a URL.
func memoryOf(t *testing.T, p *fixture.Process, url string) string {
	t.Helper()
	resident := p.Usage(t).Memory
	var page string
	for range 2 {
		status, body, err := fixture.Get(t.Context(), url+"/debug/pprof/heap?gc=1&debug=1")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status)
		page = body
	}
	match := heapAlloc.FindStringSubmatch(page)
	require.NotNil(t, match)
	used, err := strconv.Atoi(match[1])
	require.NoError(t, err)
	return fmt.Sprintf("resident %d MiB, in use after a garbage collection %.1f MiB", resident>>20, float64(used)/(1<<20))
}
