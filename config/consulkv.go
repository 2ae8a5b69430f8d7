package config

import (
	"strings"
	"time"

	"tributary/sources/consul/dial"
	"tributary/sources/consulkv"
)

// ConsulKV returns the settings as package consulkv takes them.
func (s *Source) ConsulKV() consulkv.Settings {
	return consulkv.Settings{
		Settings:         dial.Settings{TokenFile: s.TokenFile, TLS: s.tls()},
		DefaultNamespace: s.DefaultNamespace,
		UnknownFields:    s.UnknownFields,
		Wait:             time.Duration(s.Wait),
	}
}

// checkConsulKV notes what is wrong with a consul-kv source. The names of files in it are taken from dir.
func (d *decoder) checkConsulKV(s *Source, key, dir string) {
	scheme, _, _ := strings.Cut(s.Address, "://")
	if s.SubscribedResources != nil {
		d.problem(key+".subscribedResources", "not for %s addresses", scheme)
	}
	files, xds, services := s.FileSettings, s.XDSSettings, s.ConsulSettings
	files.DefaultNamespace, files.UnknownFields, xds.TokenFile, services.Wait = "", "", "", 0 // which are ours, too
	for _, others := range []any{files, xds, services} {
		d.refuse(others, key, scheme)
	}
	filesUnder(dir, s)
	if _, err := consulkv.New(s.Address, s.ConsulKV()); err != nil {
		at, message, _ := strings.Cut(err.Error(), ": ") // the error begins with the key at fault
		d.problem(key+"."+at, "%s", message)
		return
	}
	if s.Name == "" {
		address, _, _ := strings.Cut(s.Address, "?")
		s.Name = nameOf(address)
	}
}
