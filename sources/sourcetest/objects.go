package sourcetest

import (
	"time"

	"tributary/resource"
	"tributary/sources"
	"tributary/sources/registry"
)

// Objects returns the objects and rejects that a registry makes of offers at a first read.
func Objects[ID registry.ServiceID[ID]](
	mapping registry.Mapping[ID], offers map[string]registry.Offers[ID],
) (objects []*resource.Resource, rejects []sources.Reject) {
	machine := registry.NewMachine(mapping, func(ID) time.Duration { return time.Hour }, nil)
	machine.TakeAll(offers)
	for _, content := range machine.Contents(time.Now()) {
		objects, rejects = append(objects, content.Resources...), append(rejects, content.Rejects...)
	}
	return objects, rejects
}
