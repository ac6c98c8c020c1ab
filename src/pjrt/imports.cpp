#include "pjrt/imports.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace torch_xla::pjrt {

namespace {

// A library as the dynamic linker sees it.
struct Image {
  ElfW(Addr) base = 0;
  const ElfW(Rela) * relocations[2] = {};
  size_t relocation_bytes[2] = {};
  size_t relative = 0;  // the first of relocations[0] name no symbol
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  uintptr_t protected_begin = 0, protected_end = 0;  // made read-only when it was loaded
};

Image image_of(const link_map& map) {
  Image image;
  image.base = map.l_addr;
  auto pointer = [](const ElfW(Dyn) & entry) { return reinterpret_cast<void*>(entry.d_un.d_ptr); };
  for (const ElfW(Dyn)* entry = map.l_ld; entry->d_tag != DT_NULL; ++entry) {
    switch (entry->d_tag) {
      case DT_RELA:
        image.relocations[0] = static_cast<const ElfW(Rela)*>(pointer(*entry));
        break;
      case DT_RELASZ:
        image.relocation_bytes[0] = entry->d_un.d_val;
        break;
      case DT_RELACOUNT:
        image.relative = entry->d_un.d_val;
        break;
      case DT_JMPREL:
        image.relocations[1] = static_cast<const ElfW(Rela)*>(pointer(*entry));
        break;
      case DT_PLTRELSZ:
        image.relocation_bytes[1] = entry->d_un.d_val;
        break;
      case DT_SYMTAB:
        image.symbols = static_cast<const ElfW(Sym)*>(pointer(*entry));
        break;
      case DT_STRTAB:
        image.names = static_cast<const char*>(pointer(*entry));
        break;
      default:
        break;
    }
  }
  return image;
}

int find_protected(dl_phdr_info* info, size_t, void* data) {
  auto& image = *static_cast<Image*>(data);
  if (info->dlpi_addr != image.base) {
    return 0;
  }
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type == PT_GNU_RELRO) {
      image.protected_begin = image.base + part.p_vaddr;
      image.protected_end = image.protected_begin + part.p_memsz;
    }
  }
  return 1;
}

void write_slot(const Image& image, uintptr_t address, void* function) {
  static const uintptr_t page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  auto* page = reinterpret_cast<void*>(address / page_size * page_size);
  const bool read_only = address >= image.protected_begin && address < image.protected_end;
  if (read_only && mprotect(page, page_size, PROT_READ | PROT_WRITE) != 0) {
    return;
  }
  // Other threads may be calling through it.
  std::atomic_ref<void*>(*reinterpret_cast<void**>(address)).store(function);
  if (read_only) {
    mprotect(page, page_size, PROT_READ);
  }
}

// What libraries get that call it: the first one has it that was loaded behind the executable. The
// executable itself may have another address for it: where it lies at a fixed address, as Debian's
// own Python does, and takes the function's, that is a stub in there, for all who ask.
void* called_by_libraries(const char* name) {
  void* executable = dlopen(nullptr, RTLD_NOW);
  link_map* map = nullptr;
  void* function = nullptr;
  if (executable == nullptr || dlinfo(executable, RTLD_DI_LINKMAP, &map) != 0) {
    return nullptr;
  }
  while (function == nullptr && (map = map->l_next) != nullptr) {
    if (void* library = dlopen(map->l_name, RTLD_NOW | RTLD_NOLOAD)) {
      function = dlsym(library, name);
      dlclose(library);
    }
  }
  dlclose(executable);
  return function;
}

bool is_original(const char* name, const void* function) {
  return function == dlsym(RTLD_DEFAULT, name) || function == called_by_libraries(name);
}

}  // namespace

void redirect_imports(void* library, std::initializer_list<Redirection> redirections) {
  link_map* map = nullptr;
  if (library == nullptr || dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) {
    return;
  }
  Image image = image_of(*map);
  dl_iterate_phdr(&find_protected, &image);
  std::vector<std::pair<uintptr_t, void*>> slots;
  for (int table = 0; table < 2; ++table) {
    const size_t count = image.relocation_bytes[table] / sizeof(ElfW(Rela));
    for (size_t i = table == 0 ? image.relative : 0; i < count; ++i) {
      const ElfW(Rela)& relocation = image.relocations[table][i];
      const char* name = image.names + image.symbols[ELF64_R_SYM(relocation.r_info)].st_name;
      const uintptr_t address = image.base + relocation.r_offset;
      for (const Redirection& redirection : redirections) {
        if (std::strcmp(name, redirection.name) != 0) {
          continue;
        }
        if (!is_original(name, *reinterpret_cast<void**>(address))) {
          return;
        }
        slots.emplace_back(address, redirection.function);
      }
    }
  }
  for (const auto& [address, function] : slots) {
    write_slot(image, address, function);
  }
}

}  // namespace torch_xla::pjrt
