package aggregate_test

import (
	"context"
	"fmt"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/aggregate"
	"tributary/memstore"
	"tributary/resource"
)

func reviewsOn(port int) *resource.Resource {
	text := fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: reviews, namespace: shop}
spec: {hosts: [reviews.shop], resolution: DNS, ports: [{number: %d, name: http}]}
`, port)
	return resource.Decode("example.yaml", []byte(text), resource.Options{})[0].Resource
}

// Two tables are merged into one view, which a program embeds as a ConfigStoreController. The source with the higher
// precedence wins.
func Example() {
	var files, registry memstore.Table
	files.Apply([]*resource.Resource{reviewsOn(80)}, nil)
	registry.Apply([]*resource.Resource{reviewsOn(9080)}, nil)
	files.MarkSynced()
	registry.MarkSynced()

	view := aggregate.New(
		aggregate.Source{Name: "files", Reader: &files, Precedence: 1},
		aggregate.Source{Name: "registry", Reader: &registry},
	)
	store := memstore.NewController(view)
	changes := make(chan *resource.Resource)
	store.RegisterEventHandler(resource.ServiceEntry, func(_, r *resource.Resource, _ memstore.Event) { changes <- r })
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { _ = view.Run(ctx) }()
	go store.Run(ctx)

	show := func(r *resource.Resource) {
		spec, err := r.Spec()
		fmt.Println(r.Key(), spec.(*networking.ServiceEntry).GetPorts()[0].GetNumber(), err)
	}
	show(<-changes)
	files.Apply(nil, []resource.Key{reviewsOn(80).Key()})
	show(<-changes)
	show(store.Get(reviewsOn(80).Key()))
	// Output:
	// ServiceEntry shop/reviews 80 <nil>
	// ServiceEntry shop/reviews 9080 <nil>
	// ServiceEntry shop/reviews 9080 <nil>
}
