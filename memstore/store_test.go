package memstore_test

import (
	"testing"

	"tributary/memstore"
	"tributary/memstore/storetest"
	"tributary/resource"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Subject {
		s := memstore.New()
		return storetest.Subject{Store: s, Reader: s, MarkSynced: s.MarkSynced}
	})
}

func TestStoreFilledBySources(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Subject {
		s := memstore.New()
		return storetest.Subject{Store: s, Reader: s, MarkSynced: s.MarkSynced, Apply: func(puts []*resource.Resource, deletes []resource.Key) {
			s.Apply(puts, deletes)
		}}
	})
}

func TestController(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Subject {
		table := new(memstore.Table)
		return storetest.Subject{
			Store: memstore.NewController(table), Reader: table, MarkSynced: table.MarkSynced, ReadOnly: true,
			Apply: func(puts []*resource.Resource, deletes []resource.Key) { table.Apply(puts, deletes) },
		}
	})
}
