package memstore_test

import (
	"fmt"

	"tributary/memstore"
	"tributary/resource"
)

// A reader pulls the changes since the revision that it knows, however many there were.
func Example() {
	entry := func(name string) *resource.Resource {
		text := "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: " + name + ", namespace: shop}\n" +
			"spec: {hosts: [" + name + ".shop]}\n"
		return resource.Decode("example.yaml", []byte(text), resource.Options{})[0].Resource
	}
	var table memstore.Table
	table.Apply([]*resource.Resource{entry("reviews"), entry("ratings")}, nil)
	before := table.Snapshot()

	table.Apply([]*resource.Resource{entry("details")}, nil)
	table.Apply(nil, []resource.Key{entry("ratings").Key()})

	keys, now, complete := table.Changes(before.Revision())
	fmt.Println(complete)
	for _, key := range keys {
		fmt.Println(key, before.Get(key) != nil, now.Get(key) != nil)
	}
	// Output:
	// true
	// ServiceEntry shop/details false true
	// ServiceEntry shop/ratings true false
}
