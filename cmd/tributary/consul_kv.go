package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"tributary/config"
	"tributary/internal/words"
	"tributary/memstore"
	"tributary/resource"
	"tributary/sources/consulkv"
)

type storeFlags struct {
	store  string
	config string
}

func isConsulKV(address string) bool {
	scheme, _, _ := strings.Cut(address, "://")
	return scheme == consulkv.Scheme || scheme == consulkv.SecureScheme
}

// title names an object in messages, as kubectl does: "virtualservice/reviews".
func title(key resource.Key) string { return strings.ToLower(string(key.Kind)) + "/" + key.Name }

func inNamespace(key resource.Key) string {
	if key.Namespace == "" {
		return ""
	}
	return " in namespace " + key.Namespace
}

// lostRace reports whether an error tells of a change from an outdated version, and returns the advice for the user.
func lostRace(key resource.Key, err error, todo string) (ok bool, lost error) {
	for _, reason := range []error{memstore.ErrConflict, memstore.ErrExists, memstore.ErrNotFound} {
		if errors.Is(err, reason) {
			return true, fmt.Errorf("%s%s was changed by another user: %w; it was not written: %s",
				title(key), inNamespace(key), err, todo)
		}
	}
	return false, err
}

func (f *storeFlags) add(command *cobra.Command, file string) {
	command.Flags().StringVar(&f.store, "store", "",
		"store of the objects: consul-kv://host:port/prefix, or the name of a source of the "+
			"configuration (default: its only consul-kv source)")
	addConfig(command, &f.config, file)
}

func (f *storeFlags) open(ctx context.Context) (*consulkv.Store, error) {
	address, settings, err := f.find()
	if err != nil {
		return nil, err
	}
	store, err := consulkv.Open(address, settings)
	if err != nil {
		return nil, usage("--store: %w", err)
	}
	if err := store.Refresh(ctx); err != nil {
		store.Close()
		host, _, _ := strings.Cut(strings.TrimPrefix(address, consulkv.Scheme+"://"), "/")
		if means := words.ConnectionError(host, err.Error()); means != "" {
			return nil, fmt.Errorf("%s: %s", consulkv.Scheme+"://"+host[strings.LastIndexByte(host, '@')+1:], means)
		}
		return nil, err
	}
	return store, nil
}

func (f *storeFlags) find() (address string, settings consulkv.Settings, err error) {
	if strings.Contains(f.store, "://") {
		if !isConsulKV(f.store) {
			return "", settings, usage("--store: want %s://host:port/prefix, got %q", consulkv.Scheme, f.store)
		}
		return f.store, settings, nil
	}
	file := f.config
	if file == "" {
		if file, err = config.Find(config.DefaultPaths()); err != nil && f.store == "" {
			return "", settings, usage("which store? give --store %s://host:port/prefix, "+
				"or -c with a configuration that has one", consulkv.Scheme)
		} else if err != nil {
			return "", settings, usage("--store %s: %w; name that which has it with -c, or give %s://host:port/prefix",
				f.store, err, consulkv.Scheme)
		}
	}
	cfg, err := config.Load(file)
	if err != nil {
		return "", settings, &failure{exitConfig, err}
	}
	var names []string
	for _, source := range cfg.ConfigSources {
		if kv, ok := source.Settings.(*config.ConsulKV); ok && (f.store == "" || source.Name == f.store) {
			address, settings, names = source.Address, kv.Source(), append(names, source.Name)
		}
	}
	switch {
	case len(names) == 1:
		return address, settings, nil
	case f.store != "":
		return "", settings, usage("--store: the configuration has no %s source called %q", consulkv.Scheme, f.store)
	case len(names) == 0:
		return "", settings, usage("the configuration has no %s source; give --store %s://host:port/prefix",
			consulkv.Scheme, consulkv.Scheme)
	default:
		return "", settings, usage("the configuration has several stores; say which with --store: %s", strings.Join(names,
			", "))
	}
}
